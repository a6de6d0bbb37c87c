package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Settings that no configured tier can keep are refused by what they lack, and
// what is said of retention is kept or refused, never cut.
func TestSettingsAreKeptOrRefused(t *testing.T) {
	for name, test := range map[string]struct {
		in   protocol.TopicConfig
		want state.TopicSettings
		code protocol.Code // 0: taken
	}{
		"nothing said":             {protocol.TopicConfig{}, state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal}, 0},
		"retention":                {protocol.TopicConfig{Durability: "local", RetentionMS: 1500, RetentionBytes: 7}, state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal, RetentionTime: 1500 * time.Millisecond, RetentionBytes: 7}, 0},
		"not reliable":             {protocol.TopicConfig{NonReliable: true, Partitions: 3}, state.TopicSettings{Partitions: 3}, 0},
		"not reliable, and local":  {protocol.TopicConfig{NonReliable: true, Durability: "local"}, state.TopicSettings{}, protocol.CodeBadRequest},
		"not reliable, and kept":   {protocol.TopicConfig{NonReliable: true, RetentionMS: 1}, state.TopicSettings{}, protocol.CodeBadRequest},
		"warm":                     {protocol.TopicConfig{Durability: "warm"}, state.TopicSettings{}, protocol.CodeLevelUnavailable},
		"object":                   {protocol.TopicConfig{Durability: "object"}, state.TopicSettings{}, protocol.CodeLevelUnavailable},
		"an unknown level":         {protocol.TopicConfig{Durability: "paper"}, state.TopicSettings{}, protocol.CodeBadRequest},
		"too many partitions":      {protocol.TopicConfig{Partitions: state.MaxPartitions + 1}, state.TopicSettings{}, protocol.CodeBadRequest},
		"a retention below zero":   {protocol.TopicConfig{RetentionBytes: -1}, state.TopicSettings{}, protocol.CodeBadRequest},
		"a retention of millennia": {protocol.TopicConfig{RetentionMS: 1 << 62}, state.TopicSettings{}, protocol.CodeBadRequest},
	} {
		got, err := new(Board).settings(test.in)
		var refused *protocol.Error
		switch {
		case test.code == 0 && (err != nil || got != test.want):
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		case test.code != 0 && (!errors.As(err, &refused) || refused.Code != test.code):
			t.Errorf("%s: %v, want %v", name, err, test.code)
		case test.code == protocol.CodeLevelUnavailable && !strings.Contains(refused.Text, map[string]string{"warm": "durability warm is not in this version", "object": "durability object needs a cold tier"}[name]):
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && wireConfig(got).RetentionMS != test.in.RetentionMS {
			t.Errorf("%s: told as %+v", name, wireConfig(got))
		}
	}
}
