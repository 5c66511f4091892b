package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// Every mutation applies to the code as it is, and its test is there: what `make mutations` would find only when somebody runs all of it.
func TestEveryMutationApplies(t *testing.T) {
	tests := map[string]string{} // by package
	names := map[string]bool{}
	for _, m := range table() {
		content, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := m.apply(string(content)); err != nil {
			t.Errorf("%v\n(the code has changed: change integration/mutations with it)", err)
		}
		if m.old == m.new || names[m.name] {
			t.Errorf("%s: changes nothing, or has the name of another", m.name)
		}
		names[m.name] = true
		if tests[m.pkg] == "" {
			files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				tests[m.pkg] += string(b)
			}
		}
		if !strings.Contains(tests[m.pkg], "\nfunc "+m.test+"(") {
			t.Errorf("%s: %s has no test %s", m.name, m.pkg, m.test)
		}
	}
}

// Every law of the design that concerns the store has a test in it that is named after it, and all but law 8, which is about imports, a mutation,
// one at least of those that CI runs.
func TestEveryLawHasATestAndAMutation(t *testing.T) {
	named := map[string][]string{}
	law := regexp.MustCompile(`\nfunc (TestLaw([0-9]+)[A-Z][A-Za-z0-9]*)\(`)
	for _, dir := range []string{"store/*_test.go", "store/*/*_test.go", "integration/house/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range law.FindAllStringSubmatch(string(b), -1) {
				named[m[2]] = append(named[m[2]], m[1])
			}
		}
	}
	mutated := map[string]bool{}
	for _, m := range table() {
		mutated[m.law] = mutated[m.law] || m.small
	}
	for _, n := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
		if len(named[n]) == 0 {
			t.Errorf("law %s has no test", n)
		}
		if n != "8" && !mutated[n] {
			t.Errorf("law %s has no mutation that is small", n)
		}
	}
	if len(named["1"]) < 5 {
		t.Errorf("law 1 has the tests %q: the search finds too little", named["1"])
	}
}

func TestApplyNeedsTheTextOnce(t *testing.T) {
	m := &mutation{name: "x", old: "a", new: "b"}
	if got, err := m.apply("xay"); got != "xby" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, content := range []string{"", "aa"} {
		if _, err := m.apply(content); err == nil {
			t.Errorf("%q: no error", content)
		}
	}
}

// A mutation whose text has gone from its file ends the run with an error that names it.
func TestAMutationThatDoesNotApplyIsBroken(t *testing.T) {
	r := runner{root: root, dir: t.TempDir()}
	for _, m := range []mutation{{name: "gone", file: "store/open.go", old: "no such text", new: "x"}, {name: "no file", file: "store/nowhere.go", old: "a", new: "b"}} {
		if how, out := r.mutated(t.Context(), 0, &m); how != broken || !strings.Contains(out, m.file) {
			t.Errorf("%s is %s: %s", m.name, how, out)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		out  string
		want verdict
	}{
		{"=== RUN   TestX\n--- PASS: TestX (0.01s)\nPASS\n", survived},
		{"=== RUN   TestX\n    x_test.go:1: no\n--- FAIL: TestX (0.01s)\nFAIL\n", killed},
		{"=== RUN   TestX\n\npanic: test timed out after 2m0s\n", killed},
		{"=== RUN   TestX\nfatal error: all goroutines are asleep\n", killed},
		{"FAIL\tpkg [build failed]\n", broken},
		{"testing: warning: no tests to run\nPASS\n", broken},
		{"=== RUN   TestXY\n--- FAIL: TestXY (0.01s)\n", broken},
		{"panic: in init\n", broken},
	} {
		if got := judge(tc.out, "TestX"); got != tc.want {
			t.Errorf("%q is %s, want %s", tc.out, got, tc.want)
		}
	}
}

func TestBaselinesRunEachTestOnce(t *testing.T) {
	bs := baselines([]mutation{{pkg: "p", test: "A"}, {pkg: "p", test: "B"}, {pkg: "q", test: "A"}, {pkg: "p", test: "A", args: "-x"}, {pkg: "p", test: "A"}})
	if len(bs) != 3 || !slices.Equal(bs[0].tests, []string{"A", "B"}) {
		t.Errorf("%+v", bs)
	}
}
