package cold

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestPlaces(t *testing.T) {
	for text, want := range map[string]place{
		"s3://b?region=r&prefix=danube":          {prefix: "danube/", name: "s3://b?prefix=danube/"},
		"gs://b?prefix=a/b/":                     {prefix: "a/b/", name: "gs://b?prefix=a/b/"},
		"azblob://b?sig=secret":                  {name: "azblob://b"},
		"file:///mnt/danube":                     {name: "file:///mnt/danube"},
		"s3://b?endpoint=http://u:secret@host/x": {name: "s3://b"},
	} {
		got, err := parsePlace(text)
		if err != nil || got.prefix != want.prefix || got.name != want.name || got.url.Query().Has("prefix") {
			t.Errorf("%s: prefix %q, name %q, opened as %v, %v", text, got.prefix, got.name, got.url, err)
		}
	}
	for _, text := range []string{
		"", "bucket", "://x", "s3://key:secret@b", "s3://b?prefix=/secret", "s3://b?prefix=secret//x", "s3://b?prefix=../secret", "s3://b?prefix=secret%20x", "s3://b\x7fsecret",
	} {
		_, err := parsePlace(text)
		if err == nil {
			t.Errorf("%q was taken", text)
		} else if strings.Contains(err.Error(), "key:secret") || strings.Contains(err.Error(), "\x7f") {
			t.Errorf("%q shows what it should not", err)
		}
	}
}

func TestOpenRefusesWhatItCannotOpen(t *testing.T) {
	for _, cfg := range []Config{
		{URL: "s3://bucket"}, {URL: "file://host/path"}, {URL: "file:///tmp?sync=no"}, {URL: "file:///nowhere/at/all"}, {URL: "mem://", Attempts: -1},
		{URL: "x://y", Drivers: func(context.Context, *url.URL, Hooks) (*Bucket, error) { return nil, errors.New("no") }},
	} {
		if s, err := Open(t.Context(), cfg); err == nil {
			t.Errorf("%s was opened: %v", cfg.URL, s.Close())
		}
	}
}

func TestDefaults(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil || c.Attempts < 2 || c.Call < 2*c.Attempt || c.Rate <= 0 || c.FS == nil || c.Log == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a pause goes on after its caller has gone: %v", err)
	}
}
