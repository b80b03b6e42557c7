package check

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// secretNames are the endings of the program's keys that hold a secret: each has a twin that names a file.
var secretNames = []string{"password", "token", "dsn"}

// secretKeys returns the keys of a YAML text that hold a secret.
func secretKeys(text string) (found []string) {
	var document any
	if yaml.Unmarshal([]byte(text), &document) != nil {
		return nil // `projector config check` says what is wrong with it
	}
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch node := node.(type) {
		case map[string]any:
			for key, value := range node {
				at := strings.TrimPrefix(path+"."+key, ".")
				if text, ok := value.(string); ok && text != "" && slices.Contains(secretNames, key) {
					found = append(found, at)
				}
				walk(at, value)
			}
		case []any:
			for _, value := range node {
				walk(path+"[]", value)
			}
		}
	}
	walk("", document)
	slices.Sort(found)
	return found
}
