package settings

import (
	"fmt"
	"strings"
)

// CheckName refuses a part of a name (namespace, topic, subscription, broker) that is empty, longer than MaxNameBytes
// or holds anything but letters, digits, '.', '_' and '-'. The refusal names the allowed set.
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%s name is empty", what)
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%s name has %d bytes; at most %d are allowed", what, len(name), MaxNameBytes)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("%s name %q holds a character other than letters, digits, '.', '_' and '-'", what, name)
		}
	}
	return nil
}

// SplitTopic cuts "/namespace/name" in its two parts and refuses anything else.
func SplitTopic(topic string) (namespace, name string, err error) {
	rest, ok := strings.CutPrefix(topic, "/")
	if ok {
		namespace, name, ok = strings.Cut(rest, "/")
	}
	if !ok {
		return "", "", fmt.Errorf("topic name %.300q is not of the form /namespace/name", topic)
	}
	if err := CheckName("namespace", namespace); err != nil {
		return "", "", err
	}
	return namespace, name, CheckName("topic", name)
}
