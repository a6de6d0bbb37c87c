package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danubemq/danube/cmd/danube/fail"
)

// writeConfig writes a configuration file and returns its name.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "danube.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLenientConfigWarns(t *testing.T) {
	s := newShell("DANUBE_DATADIR=/x")
	file := writeConfig(t, "data_dri: x\nshutdown_timeout: 5s\n")
	if code := s.call(t, "config", "show", "--config", file, "--config-lenient"); code != fail.Done {
		t.Fatalf("exit code %d:\n%s", code, s.err.String())
	}
	for _, want := range []string{"danube: warning: " + file + ":1: unknown key data_dri; did you mean data_dir?", "danube: warning: unknown variable DANUBE_DATADIR; did you mean DANUBE_DATA_DIR?"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("says %q without %q", s.err.String(), want)
		}
	}
	if bad := newShell(); bad.call(t, "config", "check", writeConfig(t, "shutdown_timeout: x\n"), "--config-lenient") != fail.Usage {
		t.Error("a bad value passed because unknown keys do")
	}
}

func TestShowNamesOriginsAndHidesSecrets(t *testing.T) {
	file := writeConfig(t, "storage:\n  durable: {url: \"s3://bucket?secret=hunter2\"}\n")
	s := newShell("DANUBE_LOG_LEVEL=debug", "DANUBE_CONFIG="+file)
	if code := s.call(t, "config", "show", "--data-dir", "/d"); code != fail.Done {
		t.Fatalf("exit code %d:\n%s", code, s.err.String())
	}
	text := s.out.String()
	if strings.Contains(text, "hunter2") {
		t.Error("the secret is printed")
	}
	for _, want := range []string{"(set, not shown)", file + ":2", "DANUBE_LOG_LEVEL", "--data-dir", "default"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if code := s.call(t, "config", "check", writeConfig(t, "storage: {durable: {url: \"s3://bucket?secret=hunter2\"}}\n")); code != fail.Usage || strings.Contains(s.err.String(), "hunter2") {
		t.Errorf("exit code %d, the refusal prints the secret: %s", code, s.err.String())
	}
}

// TestConfigCheckNamesEveryProblem, each on a line, and the exit code is that of wrong usage.
func TestConfigCheckNamesEveryProblem(t *testing.T) {
	s := newShell()
	file := writeConfig(t, "client_port: 70000\nlog_level: loud\n")
	want := "danube: " + file + ":1: client_port: 70000 is more than the most allowed, 65535\n" +
		"danube: " + file + ":2: log_level: \"loud\" is not one of debug, info, warn, error\n"
	if code := s.call(t, "config", "check", file); code != fail.Usage || s.err.String() != want {
		t.Errorf("exit code %d, says\n%swant\n%s", code, s.err.String(), want)
	}
	s = newShell()
	if code := s.call(t, "config", "check", writeConfig(t, "")); code != fail.Done || s.err.Len() > 0 {
		t.Errorf("exit code %d of a valid file, says %s", code, s.err.String())
	}
}
