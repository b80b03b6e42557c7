package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Event is what the contract reads in one event.
type Event struct {
	ID       string // canonical identity
	Version  uint64
	Deleted  bool
	Campaign string // canonical text of the campaign column's value
	Content  string // canonical fields; "" if deleted
}

// CheckEvents says what the contract lacks to read events: a path for each
// field, the campaign and the mark of deletions among them. The mapping has
// paths too, but they are what is to be checked.
func (c *Contract) CheckEvents() error {
	var errs []error
	for i, f := range c.fields {
		if f.path == nil {
			errs = append(errs, fmt.Errorf("fields[%d] (%s): event is missing, and rows has no name for %s: write where the value stands in an event", i, f.Column, f.Source))
		}
	}
	if c.campaign < 0 {
		errs = append(errs, fmt.Errorf("fields: the campaign column %s is missing; without it an event belongs to no campaign", c.spec.Campaign))
	}
	if c.spec.Deleted != "" && c.deleted < 0 {
		errs = append(errs, fmt.Errorf("fields: the column %s is missing; without it a deletion cannot be told; add {column: %[1]s, source: \"0\", class: bool, event: …}", c.spec.Deleted))
	}
	return errors.Join(errs...)
}

// ReadEvent reads a JSON event by the contract's paths, with the standard
// library's decoder: nothing here is shared with the mapping. A missing field is
// what the contract says it stands for, else null. An error says why the event cannot be read.
func (c *Contract) ReadEvent(value []byte) (Event, error) {
	var e Event
	var root map[string]json.RawMessage
	if err := json.Unmarshal(value, &root); err != nil {
		return e, err
	}
	if err := c.accepts(root); err != nil {
		return e, err
	}
	e.Deleted = c.deleted >= 0 // until the event says otherwise
	values := make([]Value, len(c.fields))
	var content []byte
	for i := range c.fields {
		var err error
		if values[i], err = scalar(root, c.fields[i].path, c.fields[i].missing); err != nil {
			return e, fmt.Errorf("%s: %w", c.fields[i].Event, err)
		}
	}
	if e.Deleted {
		mark, err := c.fields[c.deleted].encode(nil, values[c.deleted])
		if err != nil {
			return e, fmt.Errorf("%s: %w", c.fields[c.deleted].Event, err)
		}
		e.Deleted = Text(string(mark)) == "1"
	}
	seen := map[int]bool{}
	for _, i := range append(c.key(), c.campaign) {
		if seen[i] {
			continue
		}
		seen[i] = true
		text, err := c.fields[i].encode(nil, values[i])
		if err != nil {
			return e, fmt.Errorf("%s: %w", c.fields[i].Event, err)
		}
		switch {
		case values[i].Null && i != c.campaign:
			return e, fmt.Errorf("%s: it is null", c.fields[i].Event)
		case i == c.version:
			if e.Version, err = strconv.ParseUint(Text(string(text)), 10, 64); err != nil {
				return e, fmt.Errorf("%s: %w", c.fields[i].Event, err)
			}
		}
		if slices.Contains(c.identity, i) {
			e.ID += string(text)
		}
		if i == c.campaign {
			e.Campaign = Text(string(text))
		}
	}
	if e.Deleted {
		return e, nil
	}
	content, err := c.Encode(content, values)
	if err != nil {
		return e, err
	}
	e.Content = string(content)
	return e, nil
}

// CanonicalCampaign is a campaign as [Event.Campaign] has it.
func (c *Contract) CanonicalCampaign(campaign string) (string, error) {
	if c.campaign < 0 {
		return "", errors.New("the campaign column is not among the fields")
	}
	return c.fields[c.campaign].canonical(campaign)
}

// accepts refuses events of another schema, as the projection does.
func (c *Contract) accepts(root map[string]json.RawMessage) error {
	if c.schema == nil {
		return nil
	}
	v, err := scalar(root, c.schema, Value{Null: true})
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(v.Text, 10, 64)
	if err != nil || !slices.Contains(c.spec.Accept, n) {
		return fmt.Errorf("schema version %q is not accepted", v.Text)
	}
	return nil
}

// scalar finds a value by its path; missing is what stands for one that is not
// there, as the fields of an object that is null are not.
func scalar(root map[string]json.RawMessage, path []string, missing Value) (Value, error) {
	for i, name := range path {
		raw, ok := root[name]
		switch {
		case !ok, string(raw) == "null" && i < len(path)-1:
			return missing, nil
		case i < len(path)-1:
			root = nil
			if err := json.Unmarshal(raw, &root); err != nil {
				return Value{}, fmt.Errorf("%s is no object", strings.Join(path[:i+1], "."))
			}
		default:
			return value(raw)
		}
	}
	return missing, nil
}

// value is a JSON value as a text.
func value(raw json.RawMessage) (Value, error) {
	switch {
	case string(raw) == "null":
		return Value{Null: true}, nil
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return Value{}, err
		}
		return Value{Text: text}, nil
	case raw[0] == '{' || raw[0] == '[':
		return Value{}, errors.New("an object or a list is no value that can be compared")
	}
	return Value{Text: string(raw)}, nil
}
