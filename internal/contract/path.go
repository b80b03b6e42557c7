package contract

import (
	"errors"
	"strings"
)

// parsePath takes a path such as user.id apart. A dot that belongs to a name
// follows a backslash.
func parsePath(text string) (path []string, err error) {
	var name strings.Builder
	end := func() error {
		if name.Len() == 0 {
			return errors.New("a name in the path is empty; write user.id")
		}
		path = append(path, name.String())
		name.Reset()
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			name.WriteByte(text[i])
		case c == '.':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			name.WriteByte(c)
		}
	}
	return path, end()
}
