package settings

import (
	"errors"
	"fmt"
	"slices"
)

// refuse names what the settings ask for and this version does not have, and
// what has no effect as things stand: the first is an error, the second a warning.
func (s *values) refuse() (warnings []string, err error) {
	var errs []error
	for _, later := range s.laterSettings() {
		v, from := s.text(later.key), s.origins[later.key]
		if slices.Contains(later.neutral, v) || from.kind == fromDefault {
			continue
		}
		if later.refused != "" {
			errs = append(errs, fmt.Errorf("%s: %s is %s: %s", from.where(), later.key, s.shown(later.key), later.refused))
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s has no effect: %s", from.where(), later.key, later.idle))
	}
	return warnings, errors.Join(errs...)
}

// laterSetting is a known key whose matter this version does not have.
type laterSetting struct {
	key     string
	neutral []string // values that ask for nothing
	refused string   // why another value is an error
	idle    string   // why another value is a warning
}

func (s *values) laterSettings() []laterSetting {
	const (
		noBuffer = "this version has no write buffer"
		never    = "with storage.mode local sealed segments stay on this disk; nothing is deleted from it but what a topic's retention says"
	)
	list := []laterSetting{
		{key: "storage.durability", neutral: []string{"auto", "local", "object"}, refused: noBuffer},
		{key: "storage.write_buffer.endpoints", neutral: []string{"[]"}, refused: noBuffer},
		{key: "storage.write_buffer.wait_replicas", neutral: []string{"1"}, idle: noBuffer},
		{key: "storage.write_buffer.wait_timeout", neutral: []string{"100ms"}, idle: noBuffer},
		{key: "storage.write_buffer.on_wait_timeout", neutral: []string{"fail"}, idle: noBuffer},
		{key: "storage.write_buffer.max_bytes", neutral: []string{"1GiB"}, idle: noBuffer},
	}
	if s.text("storage.mode") == "local" {
		list = append(list,
			laterSetting{key: "storage.local_retention.time", neutral: []string{"48h"}, idle: never},
			laterSetting{key: "storage.local_retention.bytes", neutral: []string{"20GiB"}, idle: never},
		)
	}
	return list
}
