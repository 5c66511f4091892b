package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// file is one parsed Go file of the repository; rel is its path from the root, with slashes.
type file struct {
	rel       string
	ast       *ast.File
	src       []byte
	generated bool
}

func (f file) module() string { m, _, _ := strings.Cut(f.rel, "/"); return m }
func (f file) dir() string    { return filepath.ToSlash(filepath.Dir(f.rel)) }
func (f file) test() bool     { return strings.HasSuffix(f.rel, "_test.go") }

func (f file) imports() (out []string) {
	for _, i := range f.ast.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err == nil {
			out = append(out, p)
		}
	}
	return out
}

// files parses every Go file of the repository.
func files(t *testing.T) []file {
	t.Helper()
	var out []file
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || name == "bin" || name == "data") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		a, err := parser.ParseFile(fset, p, src, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		out = append(out, file{filepath.ToSlash(rel), a, src, ast.IsGenerated(a)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found %d Go files below %s, so these rules looked at nothing", len(out), root)
	}
	return out
}

// within reports whether path is pkg or below it.
func within(path, pkg string) bool { return path == pkg || strings.HasPrefix(path, pkg+"/") }

// allowed says whether a package of the repository may import another; both are given without the prefix.
func allowed(from, to string) bool {
	for _, leaf := range Leaves {
		if within(from, leaf) {
			return within(to, leaf) // its own sub-packages
		}
	}
	module, _, _ := strings.Cut(from, "/")
	target, _, _ := strings.Cut(to, "/")
	return module == target || slices.ContainsFunc(Below[module], func(b string) bool { return within(to, b) })
}

func TestLaw8ImportsPointDownOnly(t *testing.T) {
	for _, f := range files(t) {
		if _, known := Below[f.module()]; !known {
			t.Errorf("%s: module %q has no place in Below", f.rel, f.module())
			continue
		}
		for _, p := range f.imports() {
			to, ours := strings.CutPrefix(p, Module)
			if ours && f.test() && within(to, f.module()+"/internal") {
				continue // a leaf's tests may use its module's test helpers
			}
			if ours && !allowed(f.dir(), to) {
				t.Errorf("%s imports %s, which points up or sideways", f.rel, p)
			}
		}
	}
}

// The rule itself must be able to say no.
func TestImportRuleRefusesWhatItShould(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"notify/exchange", "store/state", true},
		{"notify/exchange", "metaq/remoting", false},
		{"metaq/broker", "notify/wire", false},
		{"store/log", "store/record", true},
		{"store", "notify", false},
		{"store", "socket", false},
		{"socket", "store", false},
		{"metaq/server", "socket", true},
		{"metaq/remoting", "socket", false},
		{"sdk-go/notify", "socket", false},
		{"store/filter", "store/record", false},
		{"metaq/remoting", "metaq/broker", false},
		{"metaq/remoting", "store", false},
		{"sdk-go/notify", "notify/wire", true},
		{"sdk-go/notify", "notify", false},
		{"sdk-go/admin", "store/meta", false},
		{"ops/cmd/fusionctl", "fusion/config", false},
		{"fusion/server", "integration/bench", false},
		{"integration/demo", "fusion", false},
		{"integration/demo", "sdk-go/notify", true},
	} {
		if got := allowed(tc.from, tc.to); got != tc.want {
			t.Errorf("allowed(%q, %q) = %v, want %v", tc.from, tc.to, got, tc.want)
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, f := range files(t) {
		for _, p := range f.imports() {
			for dep, homes := range Only {
				if within(p, dep) && !slices.Contains(homes, f.module()) {
					t.Errorf("%s imports %s, which belongs to %v", f.rel, p, homes)
				}
			}
			if f.test() {
				continue
			}
			if slices.Contains(Forbidden[""], p) || slices.Contains(Forbidden[f.module()], p) {
				t.Errorf("%s imports %s", f.rel, p)
			}
		}
	}
}

// A test that can skip proves nothing: it passes where its condition is missing.
func TestNoTestSkips(t *testing.T) {
	skips := []string{"Skip", "Skipf", "SkipNow"}
	for _, f := range files(t) {
		if !f.test() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(skips, s.Sel.Name) && !fuzzing(f, call) {
				t.Errorf("%s calls %s", f.rel, s.Sel.Name)
			}
			return true
		})
	}
}

// fuzzing reports whether a call stands in a fuzz target, where Skip says that an input is of no interest.
func fuzzing(f file, call *ast.CallExpr) bool {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Fuzz") && fn.Pos() <= call.Pos() && call.End() <= fn.End() {
			return true
		}
	}
	return false
}

// Tests wait for events, take a clock or run in testing/synctest. Where only a socket or another process can tell, a loop may poll; a pause
// that hopes that something has happened may not.
func TestTestsDoNotSleepAndHope(t *testing.T) {
	for _, f := range files(t) {
		if !f.test() || slices.Contains(f.imports(), "testing/synctest") {
			continue
		}
		var loops []ast.Node
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ForStmt:
				loops = append(loops, n)
			case *ast.CallExpr:
				s, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || s.Sel.Name != "Sleep" {
					return true
				}
				if x, ok := s.X.(*ast.Ident); !ok || x.Name != "time" {
					return true
				}
				inside := func(l ast.Node) bool { return l.Pos() <= n.Pos() && n.End() <= l.End() }
				if !slices.ContainsFunc(loops, inside) {
					t.Errorf("%s: time.Sleep outside a polling loop and outside testing/synctest", f.rel)
				}
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range files(t) {
		if f.test() {
			continue
		}
		key := f.dir()
		documented[key] = documented[key] || f.ast.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment (a blank line before `package` loses it)", dir)
		}
	}
}

func TestFilesHoldOneThing(t *testing.T) {
	for _, f := range files(t) {
		if n := strings.Count(string(f.src), "\n"); n > MaxLines && !f.generated {
			t.Errorf("%s has %d lines, more than %d", f.rel, n, MaxLines)
		}
	}
}

func TestLicenceIsApache2(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "Apache License") || !strings.Contains(string(b), "Version 2.0, January 2004") {
		t.Error("LICENSE is not the Apache License 2.0")
	}
}

var (
	namedFile = regexp.MustCompile("`((?:store|notify|metaq|sdk-go|fusion|ops|integration|docs)/[A-Za-z0-9_./-]+)`")
	namedTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)`")
	declared  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)\(`)
)

// A page that names files and tests that are gone is worse than none.
func TestArchitectureNamesWhatExists(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, f := range files(t) {
		if f.test() {
			for _, m := range declared.FindAllSubmatch(f.src, -1) {
				tests[string(m[1])] = true
			}
		}
	}
	named := 0
	for _, m := range namedTest.FindAllSubmatch(page, -1) {
		named++
		if !tests[string(m[1])] {
			t.Errorf("ARCHITECTURE.md names %s, which no test file declares", m[1])
		}
	}
	for _, m := range namedFile.FindAllSubmatch(page, -1) {
		named++
		if later := []string{"notify/api", "store/filter"}; slices.Contains(later, string(m[1])) {
			continue // leaves that come with a later issue
		}
		if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", m[1], err)
		}
	}
	if named < 50 {
		t.Errorf("found %d names in ARCHITECTURE.md, so this looked at next to nothing", named)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, docs...) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(b, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(m[1]))); err != nil {
				t.Errorf("%s: %v", filepath.Base(page), err)
			}
		}
	}
}

// Both READMEs begin with how to run and how to test.
func TestReadmesShowTheTwoCommandsFirst(t *testing.T) {
	for _, name := range []string{"README.md", "README.zh-CN.md"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		head := strings.Join(strings.SplitN(string(b), "\n", 10)[:9], "\n")
		for _, cmd := range []string{"make run", "make test"} {
			if !strings.Contains(head, cmd) {
				t.Errorf("%s: %q is not in the first lines", name, cmd)
			}
		}
	}
}
