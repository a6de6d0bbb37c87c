package integration

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The stops of the style page: over them the code is taken apart first.
const (
	maxFileLines        = 600
	maxFunctionLines    = 80
	maxTestLines        = 150 // a table of cases is data
	maxStructFields     = 20
	maxInterfaceMethods = 6
	maxParameters       = 5
)

// TestRuleBounds walks every Go file of the tree, further modules included, and fails on what stands over a stop.
func TestRuleBounds(t *testing.T) {
	seen := 0
	walkTree(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		seen++
		complaints, err := judgeFile(path, text)
		if err != nil {
			t.Error(err)
		}
		for _, c := range complaints {
			t.Error(c)
		}
	})
	if seen == 0 {
		t.Fatal("no Go file found: the rule looked at nothing")
	}
}

// TestRuleNoLeftovers fails on marks of unfinished work in code, scripts and documents.
func TestRuleNoLeftovers(t *testing.T) {
	marks := []string{"TO" + "DO", "FIX" + "ME"}
	walkTree(t, func(path string, text []byte) {
		switch filepath.Ext(path) {
		case ".go", ".md", ".sh", ".yaml", "":
		default:
			return
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, mark := range marks {
				if strings.Contains(line, mark) {
					t.Errorf("%s:%d says %s: finish it or file an issue", path, n+1, mark)
				}
			}
		}
	})
}

// walkTree hands over every file of the repository by its path from the root, build output and test data aside.
func walkTree(t testing.TB, visit func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", "bin", "testdata", "logs", "danube-data":
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 4<<20 {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		visit(strings.TrimPrefix(filepath.ToSlash(path), "../"), text)
		return nil
	})
	if err != nil {
		t.Fatalf("walk the tree: %v", err)
	}
}

// judgeFile names everything in one Go file that stands over a stop or that the style page bans.
func judgeFile(path string, text []byte) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	var out []string
	complain := func(at token.Pos, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s:%d: ", path, fset.Position(at).Line)+fmt.Sprintf(format, args...))
	}
	if n := bytes.Count(text, []byte("\n")); n > maxFileLines {
		complain(file.Package, "%d lines, the stop is %d", n, maxFileLines)
	}
	test := strings.HasSuffix(path, "_test.go")
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			lines := fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1
			stop := maxFunctionLines
			if test {
				stop = maxTestLines
			}
			if lines > stop {
				complain(n.Pos(), "%s has %d lines, the stop is %d", n.Name.Name, lines, stop)
			}
			// What a foreign interface asks for is not ours to choose.
			foreign := n.Recv != nil && strings.HasPrefix(n.Doc.Text(), n.Name.Name+" implements ")
			if k := named(n.Type.Params); k > maxParameters && !foreign {
				complain(n.Pos(), "%s has %d parameters, the stop is %d", n.Name.Name, k, maxParameters)
			}
			if n.Name.Name == "init" && n.Recv == nil {
				complain(n.Pos(), "init functions are banned: pass what is needed")
			}
		case *ast.StructType:
			if k := n.Fields.NumFields(); k > maxStructFields {
				complain(n.Pos(), "a struct with %d fields, the stop is %d", k, maxStructFields)
			}
		case *ast.InterfaceType:
			if k := n.Methods.NumFields(); k > maxInterfaceMethods {
				complain(n.Pos(), "an interface with %d methods, the stop is %d", k, maxInterfaceMethods)
			}
		case *ast.GenDecl:
			judgeGroups(fset, n, complain)
		case *ast.SelectorExpr:
			if base, ok := n.X.(*ast.Ident); ok && test && base.Name == "time" && n.Sel.Name == "Sleep" {
				complain(n.Pos(), "a test that sleeps: use testing/synctest, an injected clock, or eventually")
			}
		}
		return true
	})
	return out, nil
}

// judgeGroups complains of a group of imports that mixes the standard library, other modules and this one.
func judgeGroups(fset *token.FileSet, decl *ast.GenDecl, complain func(at token.Pos, format string, args ...any)) {
	origin := func(spec ast.Spec) int {
		path := strings.Trim(spec.(*ast.ImportSpec).Path.Value, `"`)
		first, _, _ := strings.Cut(path, "/")
		switch {
		case path == module || strings.HasPrefix(path, module+"/"):
			return 2
		case strings.Contains(first, "."):
			return 1
		}
		return 0
	}
	for i, spec := range decl.Specs {
		if decl.Tok != token.IMPORT || i == 0 {
			continue
		}
		before := decl.Specs[i-1]
		if fset.Position(spec.Pos()).Line == fset.Position(before.End()).Line+1 && origin(spec) != origin(before) {
			complain(spec.Pos(), "imports of two origins in one group")
		}
	}
}

// named counts the parameters that have a name: those that a foreign interface asks for and nobody uses have none.
func named(params *ast.FieldList) int {
	n := 0
	for _, p := range params.List {
		n += len(p.Names)
	}
	return n
}

// TestJudgeFileFindsViolations holds the judge to each of its sentences.
func TestJudgeFileFindsViolations(t *testing.T) {
	fields := strings.Repeat("a ,", maxStructFields)
	tests := map[string]struct{ path, text, want string }{
		"fine":        {"a.go", "package a\nfunc f(a, b int) {}\n", ""},
		"long file":   {"a.go", "package a\n" + strings.Repeat("\n", maxFileLines), "601 lines"},
		"long func":   {"a.go", "package a\nfunc f() {\n" + strings.Repeat("\n", maxFunctionLines) + "}\n", "f has 82 lines"},
		"long test":   {"a_test.go", "package a\nfunc f() {\n" + strings.Repeat("\n", maxTestLines) + "}\n", "f has 152 lines"},
		"table test":  {"a_test.go", "package a\nfunc f() {\n" + strings.Repeat("\n", maxFunctionLines) + "}\n", ""},
		"foreign":     {"a.go", "package a\nfunc f(int, int, int, int, int, int) {}\n", ""},
		"implements":  {"a.go", "package a\n\n// F implements b.F.\nfunc (T) F(a, b, c, d, e, f int) {}\n", ""},
		"wide func":   {"a.go", "package a\nfunc f(a, b, c, d, e, f int) {}\n", "6 parameters"},
		"init":        {"a.go", "package a\nfunc init() {}\n", "init functions"},
		"method":      {"a.go", "package a\ntype t int\nfunc (t) init() {}\n", ""},
		"god struct":  {"a.go", "package a\ntype t struct { " + strings.ReplaceAll(fields, ",", "int;") + " b int }\n", "21 fields"},
		"wide iface":  {"a.go", "package a\ntype t interface { a(); b(); c(); d(); e(); f(); g() }\n", "7 methods"},
		"sleep":       {"a_test.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "a test that sleeps"},
		"imports":     {"a.go", "package a\nimport (\n\t\"time\"\n\t\"golang.org/x/sys/unix\"\n)\n", "two origins"},
		"own import":  {"a.go", "package a\nimport (\n\t\"golang.org/x/sys/unix\"\n\t\"" + module + "/client\"\n)\n", "two origins"},
		"groups":      {"a.go", "package a\nimport (\n\t\"fmt\"\n\t\"time\"\n\n\t\"golang.org/x/sys/unix\"\n)\n", ""},
		"sleep aside": {"a.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			complaints, err := judgeFile(test.path, []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(complaints, "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("judged %q, want %q", got, test.want)
			}
		})
	}
}
