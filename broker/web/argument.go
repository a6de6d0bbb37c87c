package web

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/danubemq/danube/protocol"
)

// topicConfig is a topic's settings as JSON has them: a person says what is
// true, the binary protocol what differs from the default.
type topicConfig struct {
	protocol.TopicConfig
	Reliable bool `json:"reliable"`
}

// decodeJSON reads an argument: one JSON value and nothing behind it, each of
// its fields known. No body at all is an argument with nothing in it.
func decodeJSON(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	into := v
	create, ok := v.(*protocol.TopicCreate)
	var named struct {
		Topic  string      `json:"topic"`
		Config topicConfig `json:"config"`
	}
	if ok {
		named.Config.Reliable = true
		into = &named
	}
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the argument")
	}
	if ok {
		create.Topic, create.Config = named.Topic, named.Config.TopicConfig
		create.Config.NonReliable = !named.Config.Reliable
	}
	return nil
}
