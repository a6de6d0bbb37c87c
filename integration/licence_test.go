package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// licences recognises a licence by sentences that its text holds; spaces and case do not matter. The first that fits
// names it, so the refused ones stand first: a text that quotes two licences is judged by the stricter.
func licences() []struct {
	name      string
	allowed   bool
	sentences []string
} {
	return []struct {
		name      string
		allowed   bool
		sentences []string
	}{
		{"AGPL", false, []string{"gnu affero general public license version 3"}},
		{"GPL", false, []string{"gnu general public license version"}},
		{"LGPL", false, []string{"gnu lesser general public license version"}},
		{"BUSL", false, []string{"business source license"}},
		{"SSPL", false, []string{"server side public license"}},
		{"Apache-2.0", true, []string{"apache license version 2.0"}},
		{"MPL-2.0", true, []string{"mozilla public license", "2.0"}},
		{"MIT", true, []string{"permission is hereby granted, free of charge, to any person obtaining a copy"}},
		{"ISC", true, []string{"permission to use, copy, modify, and/or distribute this software for any purpose"}},
		{"ISC", true, []string{"permission to use, copy, modify, and distribute this software for any purpose"}},
		{"BSD", true, []string{"redistribution and use in source and binary forms, with or without modification"}},
		{"Unlicense", true, []string{"this is free and unencumbered software released into the public domain"}},
	}
}

// judgeLicence names the licence of a text and whether it may be linked; "" is a text that nobody recognises.
func judgeLicence(text string) (name string, allowed bool) {
	flat := strings.Join(strings.Fields(strings.NewReplacer(`"`, "", "'", "", "(", " ", ")", " ").Replace(strings.ToLower(text))), " ")
	// Some texts put a comma after the name: "Apache License, Version 2.0".
	flat = strings.ReplaceAll(strings.ReplaceAll(flat, "license, version", "license version"), "license, v. 2.0", "license 2.0")
	for _, l := range licences() {
		// MPL-2.0 names the GPL further down as a secondary licence: what a text names first is what it is.
		mpl := strings.Index(flat, "mozilla public license")
		if !l.allowed && mpl >= 0 && mpl < strings.Index(flat, l.sentences[0]) {
			continue
		}
		fits := true
		for _, s := range l.sentences {
			fits = fits && strings.Contains(flat, s)
		}
		if fits {
			return l.name, l.allowed
		}
	}
	return "", false
}

// TestRuleLicences reads the licence of every module that the program links and fails on one that is missing,
// unknown or refused. Until there is a program, every package of the tree is looked at.
func TestRuleLicences(t *testing.T) {
	target, program := "./...", false
	if _, err := os.Stat("../cmd/danube"); err == nil {
		target, program = "./cmd/danube", true
	}
	modules := linkedModules(t, target)
	if program && len(modules) == 0 {
		t.Fatal("the program links no module: the rule looked at nothing")
	}
	count := map[string]int{}
	for path, dir := range modules {
		names, err := moduleLicences(dir)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, n := range names {
			count[n]++
		}
	}
	t.Logf("%d modules: %v", len(modules), count)
}

// moduleLicences judges every licence file at the root of a module; all of them must be allowed.
func moduleLicences(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list module: %w", err)
	}
	var names []string
	for _, e := range entries {
		base := strings.ToLower(e.Name())
		if e.IsDir() || !strings.HasPrefix(base, "licen") && !strings.HasPrefix(base, "copying") && !strings.HasPrefix(base, "unlicen") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read licence: %w", err)
		}
		name, allowed := judgeLicence(string(text))
		switch {
		case name == "":
			return nil, fmt.Errorf("the licence in %s is not one we know", e.Name())
		case !allowed:
			return nil, fmt.Errorf("%s says %s, which we do not link", e.Name(), name)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, errors.New("no licence file")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// linkedModules maps the path of each further module that target links to its folder in the module cache.
func linkedModules(t testing.TB, target string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=Module", target)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list linked modules: %v", err)
	}
	modules := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Module *struct {
				Path string
				Dir  string
				Main bool
			}
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return modules
		} else if err != nil {
			t.Fatalf("decode module list: %v", err)
		}
		if p.Module != nil && !p.Module.Main {
			modules[p.Module.Path] = p.Module.Dir
		}
	}
}

// TestJudgeLicence holds the judge to what each text says of itself.
func TestJudgeLicence(t *testing.T) {
	own, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		text    string
		name    string
		allowed bool
	}{
		"our own":      {string(own), "Apache-2.0", true},
		"MIT":          {"MIT License\n\nPermission is hereby granted, free of\ncharge, to any person obtaining a copy\nof this", "MIT", true},
		"BSD":          {"Redistribution and use in source and binary forms, with or without\nmodification, are permitted", "BSD", true},
		"MPL with GPL": {"Copyright (c) 2013 Somebody\n\nMozilla Public License Version 2.0\n … means either the GNU General Public License, Version 2.0, the GNU Affero General Public License, Version 3.0", "MPL-2.0", true},
		"MPL short":    {"Mozilla Public License, version 2.0\n\n1. Definitions", "MPL-2.0", true},
		"GPL":          {"GNU GENERAL PUBLIC LICENSE\n   Version 2, June 1991", "GPL", false},
		"AGPL":         {"GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3, 19 November 2007", "AGPL", false},
		"BUSL":         {"Business Source License 1.1", "BUSL", false},
		"unknown":      {"You may use this on Thursdays.", "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if n, ok := judgeLicence(test.text); n != test.name || ok != test.allowed {
				t.Errorf("judged %q %v, want %q %v", n, ok, test.name, test.allowed)
			}
		})
	}
}
