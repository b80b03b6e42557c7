package mapping

import (
	"errors"
	"slices"
	"time"

	"github.com/chprojector/projector/chschema"
)

// kinds calls visit for a type and everything within it.
func kinds(t chschema.Type, visit func(chschema.Type)) {
	visit(t)
	for _, e := range t.Elem {
		kinds(e, visit)
	}
}

func (c *compiler) options(spec *Column) *options {
	o := &options{unit: -1, strict: c.plan.spec.Strict}
	times, decimals := false, false
	kinds(spec.Type, func(t chschema.Type) {
		switch t.Kind {
		case chschema.KindDateTime, chschema.KindDateTime64:
			times = true
		case chschema.KindDecimal:
			decimals = true
		}
	})
	if spec.Zone != "" {
		if !times {
			c.problem("column %s: zone is for DateTime and DateTime64, not for %s", spec.Name, spec.Type)
		}
		zone, err := loadZone(spec.Zone)
		if err != nil {
			c.problem("column %s: zone: %w", spec.Name, err)
		}
		o.zone = zone
	}
	if spec.Unit != "" {
		if !times {
			c.problem("column %s: unit is for DateTime and DateTime64, not for %s", spec.Name, spec.Type)
		}
		units := []string{"s", "", "", "ms", "", "", "us", "", "", "ns"}
		if o.unit = slices.Index(units, spec.Unit); o.unit < 0 {
			c.problem("column %s: unit %q: it is s, ms, us or ns", spec.Name, spec.Unit)
		}
	}
	switch spec.Round {
	case "":
	case "half_even":
		if !times && !decimals {
			c.problem("column %s: round is for Decimal, DateTime and DateTime64, not for %s", spec.Name, spec.Type)
		}
		o.halfEven = true
	default:
		c.problem("column %s: round %q: the only rounding is half_even", spec.Name, spec.Round)
	}
	return o
}

// loadZone refuses Local, which would make the rows depend on the machine.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("Local depends on the machine; name a zone such as Europe/Zurich")
	}
	return time.LoadLocation(name)
}

// mapKeys refuses keys that no name of a JSON object can be.
func (c *compiler) mapKeys(column string, t chschema.Type) {
	kinds(t, func(t chschema.Type) {
		if t.Kind != chschema.KindMap {
			return
		}
		switch key := t.Elem[0]; key.Kind {
		case chschema.KindArray, chschema.KindMap, chschema.KindTuple, chschema.KindFloat32, chschema.KindFloat64:
			c.problem("column %s: %s: the names of a JSON object cannot be keys of type %s", column, t, key)
		}
	})
}

func (c *compiler) typeZones(column string, t chschema.Type) {
	kinds(t, func(t chschema.Type) {
		if t.Zone == "" {
			return
		}
		if _, err := loadZone(t.Zone); err != nil {
			c.problem("column %s: %s: %w", column, t, err)
		}
	})
}
