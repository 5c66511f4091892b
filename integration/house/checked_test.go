package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// checks are what has a directory verified by store/check, in the tests of the store, beside check.Run itself. Tests within the package store
// cannot import it, and are not looked at.
var checks = []string{"checkAtEnd", "found", "findings"}

// opener is a function of a test file, or the methods of one type together, as far as this rule looks at it.
type opener struct {
	opens, checks, bench, test bool
	at                         string
}

// look notes what a declaration does.
func (o *opener) look(d *ast.FuncDecl) {
	for _, p := range d.Type.Params.List {
		t := p.Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		if s, ok := t.(*ast.SelectorExpr); ok && slices.Contains([]string{"T", "F", "TB"}, s.Sel.Name) {
			o.test = true
		} else if ok && s.Sel.Name == "B" {
			o.bench = true
		}
	}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := c.Fun.(type) {
		case *ast.Ident:
			o.checks = o.checks || slices.Contains(checks, f.Name)
		case *ast.SelectorExpr:
			x, ok := f.X.(*ast.Ident)
			o.opens = o.opens || ok && x.Name == "store" && f.Sel.Name == "Open"
			o.checks = o.checks || ok && x.Name == "check" && f.Sel.Name == "Run"
		}
		return true
	})
}

// unchecked are the functions and types in the test files of the store that open one and have nothing of it checked. A function that knows no
// test runs in a process of its own, which is killed; a benchmark has its directory for itself.
func unchecked(fs []file) (names []string, looked int) {
	all := map[string]*opener{}
	for _, f := range fs {
		if f.dir() != "store" || !f.test() {
			continue
		}
		for _, d := range f.ast.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			name := d.Name.Name
			if d.Recv != nil {
				t := d.Recv.List[0].Type
				if star, ok := t.(*ast.StarExpr); ok {
					t = star.X
				}
				if x, ok := t.(*ast.Ident); ok {
					name = "type " + x.Name
				}
			}
			if all[name] == nil {
				all[name] = &opener{at: f.rel, test: strings.HasPrefix(name, "type ")}
			}
			all[name].look(d)
		}
	}
	for name, o := range all {
		if !o.opens {
			continue
		}
		if looked++; o.test && !o.bench && !o.checks {
			names = append(names, o.at+": "+name)
		}
	}
	slices.Sort(names)
	return names, looked
}

// Every test of the store that opens one has store/check verify what it leaves: it opens it by open or tryOpen, or asks for the check itself.
func TestEveryStoreThatATestOpensIsChecked(t *testing.T) {
	names, looked := unchecked(files(t))
	for _, n := range names {
		t.Errorf("%s opens a store and has nothing of it checked: open it by open or tryOpen, or call found when it is closed", n)
	}
	if looked < 10 {
		t.Errorf("%d functions open a store, so this looked at next to nothing", looked)
	}
}

func TestTheRuleOfChecksFindsWhatHasNone(t *testing.T) {
	const src = `package store_test
func tryOpen(t testing.TB) { checkAtEnd(t); store.Open(o) }
func TestByHelper(t *testing.T) { tryOpen(t) }
func TestByHand(t *testing.T) { store.Open(o); found(t, o) }
func TestUnchecked(t *testing.T) { t.Run("", func(t *testing.T) { store.Open(o) }) }
func FuzzUnchecked(f *testing.F) { f.Fuzz(func(t *testing.T) { store.Open(o) }) }
func opened(t testing.TB) { store.Open(o) }
func BenchmarkOpen(b *testing.B) { store.Open(o) }
func child(dir string) error { store.Open(o) }
func (c *crash) round() { store.Open(o) }
func (c *crash) check() { findings(o) }
func (l lazy) round() { store.Open(o) }
`
	got, looked := unchecked([]file{parsed(t, "store/x_test.go", src)})
	want := []string{"store/x_test.go: FuzzUnchecked", "store/x_test.go: TestUnchecked", "store/x_test.go: opened", "store/x_test.go: type lazy"}
	if !slices.Equal(got, want) || looked != 9 {
		t.Errorf("%q of %d, want %q", got, looked, want)
	}
}

func parsed(t *testing.T, rel, src string) file {
	t.Helper()
	a, err := parser.ParseFile(token.NewFileSet(), rel, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file{rel: rel, ast: a, src: []byte(src)}
}
