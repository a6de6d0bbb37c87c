package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// originKind is where a value came from; later ones win.
type originKind uint8

const (
	fromDefault originKind = iota
	fromFile
	fromEnv
	fromFlag
	fromArgument
)

// origin names the place a value came from.
type origin struct {
	kind originKind
	name string // file, variable or flag
	line int    // of a file
}

// where is the origin as errors and config show print it.
func (o origin) where() string {
	switch o.kind {
	case fromFile:
		if o.line > 0 {
			return fmt.Sprintf("%s:%d", o.name, o.line)
		}
		return o.name
	case fromEnv:
		return o.name
	case fromFlag:
		return "--" + o.name
	case fromArgument:
		return o.name
	}
	return "default"
}

// Sources is what a configuration is read from.
type Sources struct {
	File    string // "" for none
	Env     []string
	Flags   *pflag.FlagSet // nil for none
	Lenient bool           // unknown keys are warnings
	Seeds   []string       // arguments of join; they take the place of cluster.seeds
	Alone   bool           // for a broker without a cluster to join
}

// values is a configuration with the origin of every value.
type values struct {
	by       *koanf.Koanf
	origins  map[string]origin
	known    map[string]setting
	unknown  []string // lenient: what was passed over
	problems []error
}

// read merges the sources, later ones over earlier ones. It returns what it could read together with an error
// that names every problem with its place, so that one run shows them all.
func read(src Sources) (*values, error) {
	s := &values{by: koanf.New("."), origins: map[string]origin{}, known: map[string]setting{}}
	for _, d := range keys() {
		s.known[d.key] = d
		s.put(d.key, d.value, origin{})
	}
	if src.File != "" {
		if err := s.readFile(src.File, src.Lenient); err != nil {
			return s, err
		}
	}
	if err := s.readEnv(src.Env, src.Lenient); err != nil {
		return s, err
	}
	if src.Flags != nil {
		for _, d := range keys() {
			if f := src.Flags.Lookup(d.flag); d.flag != "" && f != nil && f.Changed {
				s.put(d.key, f.Value.String(), origin{kind: fromFlag, name: d.flag})
			}
		}
	}
	if len(src.Seeds) > 0 {
		s.put("cluster.seeds", strings.Join(src.Seeds, ","), origin{kind: fromArgument, name: "SEED"})
	}
	return s, errors.Join(s.problems...)
}

// Load reads and judges the configuration of a broker.
func Load(src Sources) (Config, []string, error) {
	s, err := read(src)
	if err != nil {
		return Config{}, nil, err
	}
	warnings, err := s.refuse()
	if err = errors.Join(err, s.judgeDurable(), s.judgeCluster(src.Alone)); err != nil {
		return Config{}, nil, err
	}
	cfg, err := s.config()
	return cfg, append(s.unknown, warnings...), err
}

// put sets a known key, or records why it cannot.
func (s *values) put(key string, raw any, from origin) {
	v, err := s.known[key].parse(raw)
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("%s: %s: %w", from.where(), key, err))
		return
	}
	// Set fails only without a key.
	_ = s.by.Set(key, v)
	s.origins[key] = from
}

// text is a value as it would stand in the file.
func (s *values) text(key string) string { return s.known[key].format(s.by.Get(key)) }

// shown is text, a secret that is set replaced.
func (s *values) shown(key string) string {
	if v := s.text(key); !s.known[key].secret || v == s.known[key].value {
		return v
	}
	return "(set, not shown)"
}

// Check reads a file and judges it as Load does, but goes on: the error names every problem, one a line.
func Check(src Sources) (warnings []string, err error) {
	s, err := read(src)
	warnings, refused := s.refuse()
	return append(s.unknown, warnings...), errors.Join(err, refused, s.judgeDurable())
}

// Shown is one value of the effective configuration as it may be printed.
type Shown struct {
	Key   string `json:"key"`
	Value string `json:"value"` // a secret is replaced
	From  string `json:"from"`  // default, file:line, the variable or the flag
}

// Show reads the effective configuration, in the order of the documentation. It does not judge what Load refuses.
func Show(src Sources) (shown []Shown, warnings []string, err error) {
	s, err := read(src)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range keys() {
		shown = append(shown, Shown{d.key, s.shown(d.key), s.origins[d.key].where()})
	}
	return shown, s.unknown, nil
}

// config fills the typed configuration.
func (s *values) config() (Config, error) {
	var c Config
	if err := s.by.Unmarshal("", &c); err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return c, nil
}

// yamlParser is koanf's parser over goccy/go-yaml.
type yamlParser struct{}

func (yamlParser) Unmarshal(b []byte) (map[string]any, error) {
	m := map[string]any{}
	return m, yaml.Unmarshal(b, &m)
}

func (yamlParser) Marshal(m map[string]any) ([]byte, error) { return yaml.Marshal(m) }

// bytesProvider hands koanf a file that was read before.
type bytesProvider []byte

func (b bytesProvider) ReadBytes() ([]byte, error)    { return b, nil }
func (b bytesProvider) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

// readFile merges a YAML file.
func (s *values) readFile(file string, lenient bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	lines, err := keyLines(text)
	if err != nil {
		return yamlError(file, err)
	}
	layer := koanf.New("\x00") // keys with dots stay whole: they are wrong, and named as written
	if err := layer.Load(bytesProvider(text), yamlParser{}); err != nil {
		return yamlError(file, err)
	}
	s.merge("", layer.Raw(), func(key string) origin { return origin{kind: fromFile, name: file, line: lines[key]} }, lenient)
	return nil
}

// merge puts a section of a file, keys in the order of their lines.
func (s *values) merge(section string, m map[string]any, at func(string) origin, lenient bool) {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if d := at(section+a).line - at(section+b).line; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		key, v := section+name, m[name]
		below, isMap := v.(map[string]any)
		_, isKey := s.known[key]
		switch {
		case strings.Contains(name, "."):
			s.problems = append(s.problems, fmt.Errorf("%s: unknown key %s: sections are nested, not written with dots", at(key).where(), key))
		case isKey:
			s.put(key, v, at(key))
		case isMap && s.isSection(key):
			s.merge(key+".", below, at, lenient)
		case s.isSection(key) && v == nil:
			// A section without content, as a commented-out one leaves behind.
		case s.isSection(key):
			s.problems = append(s.problems, fmt.Errorf("%s: %s is a section: its settings stand below it", at(key).where(), key))
		default:
			s.unknownKey(key, at(key), lenient)
		}
	}
}

func (s *values) isSection(key string) bool {
	for k := range s.known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// unknownKey records a key that does not exist, with the one that was probably meant.
func (s *values) unknownKey(key string, from origin, lenient bool) {
	names := slices.Sorted(maps.Keys(s.known))
	for _, k := range slices.Clone(names) {
		for i := strings.LastIndexByte(k, '.'); i > 0; i = strings.LastIndexByte(k[:i], '.') {
			names = append(names, k[:i])
		}
	}
	text := fmt.Sprintf("%s: unknown key %s", from.where(), key)
	near := nearestKey(key, names)
	if near != "" {
		text += fmt.Sprintf("; did you mean %s?", near)
	}
	if lenient {
		s.unknown = append(s.unknown, text)
		return
	}
	s.problems = append(s.problems, errors.New(text))
}

// nearestKey is the key that was probably meant: one of the same name in another section, else one written nearly the
// same, else one whose name is nearly the same.
func nearestKey(key string, names []string) string {
	last := func(k string) string { return k[strings.LastIndexByte(k, '.')+1:] }
	named := func(name string) string {
		for _, k := range names {
			if last(k) == name {
				return k
			}
		}
		return ""
	}
	if same := named(last(key)); same != "" {
		return same
	}
	if near := Nearest(key, names); near != "" {
		return near
	}
	var lasts []string
	for _, k := range names {
		lasts = append(lasts, last(k))
	}
	if near := Nearest(last(key), lasts); near != "" {
		return named(near)
	}
	return ""
}

// keyLines maps each key of a YAML text, sections included, to its line.
func keyLines(text []byte) (map[string]int, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, err
	}
	lines := map[string]int{}
	var walk func(prefix string, n ast.Node)
	walk = func(prefix string, n ast.Node) {
		switch n := n.(type) {
		case *ast.MappingNode:
			for _, v := range n.Values {
				walk(prefix, v)
			}
		case *ast.MappingValueNode:
			key := prefix + n.Key.GetToken().Value
			lines[key] = n.Key.GetToken().Position.Line
			walk(key+".", n.Value)
		case *ast.AnchorNode:
			walk(prefix, n.Value)
		}
	}
	for _, doc := range file.Docs {
		walk("", doc.Body)
	}
	return lines, nil
}

// yamlError gives goccy's error the house's form, file and line in front.
func yamlError(file string, err error) error {
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
		return fmt.Errorf("%s:%d: %s", file, e.GetToken().Position.Line, e.GetMessage())
	}
	return fmt.Errorf("%s: %w", file, err)
}

// readEnv merges the DANUBE_ variables. Variables that other parts use, and those that Kubernetes sets for a service
// of the name danube, are no settings. An unknown one that is near a setting is an error like an unknown key.
func (s *values) readEnv(environ []string, lenient bool) error {
	byName := map[string]string{}
	for key := range s.known {
		byName[envName(key)] = key
	}
	provider := env.Provider(".", env.Opt{
		Prefix:      "DANUBE_",
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if key, ok := byName[name]; ok {
				s.put(key, value, origin{kind: fromEnv, name: name})
				return "", nil
			}
			if near := Nearest(name, slices.Sorted(maps.Keys(byName))); near != "" && !foreignVariable(name) {
				text := fmt.Sprintf("unknown variable %s; did you mean %s?", name, near)
				if lenient {
					s.unknown = append(s.unknown, text)
				} else {
					s.problems = append(s.problems, errors.New(text))
				}
			}
			return "", nil
		},
	})
	if _, err := provider.Read(); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}
	return nil
}

func foreignVariable(name string) bool {
	return name == "DANUBE_BROKER" || name == "DANUBE_CONFIG" || name == "DANUBE_PORT" ||
		strings.HasPrefix(name, "DANUBE_PORT_") || strings.HasPrefix(name, "DANUBE_SERVICE_")
}
