package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutation is one way in which the store could be broken.
type mutation struct {
	law      string // the number in the design's list
	name     string // what is broken, for people
	file     string // from the root of the repository
	old, new string // old is in the file exactly once
	pkg      string // of the test, from the root of the repository
	test     string // that has to fail
	args     string // flags of its package, separated by spaces
	small    bool   // quick, and run by CI
}

// apply returns the content of the file with the mutation.
func (m *mutation) apply(content string) (string, error) {
	if n := strings.Count(content, m.old); n != 1 {
		return "", fmt.Errorf("%s: the text of the mutation %q is there %d times, want once:\n%s", m.file, m.name, n, m.old)
	}
	return strings.Replace(content, m.old, m.new, 1), nil
}

// verdict is what became of a mutation.
type verdict string

const (
	killed   verdict = "killed"   // its test failed
	survived verdict = "SURVIVED" // its test passed
	broken   verdict = "BROKEN"   // it does not apply, does not compile, or its test did not run
)

// baseline is a run without a mutation: tests of one package that share their flags.
type baseline struct {
	pkg, args string
	tests     []string
}

func baselines(ms []mutation) []baseline {
	var bs []baseline
	for _, m := range ms {
		i := slices.IndexFunc(bs, func(b baseline) bool { return b.pkg == m.pkg && b.args == m.args })
		if i < 0 {
			i, bs = len(bs), append(bs, baseline{pkg: m.pkg, args: m.args})
		}
		if !slices.Contains(bs[i].tests, m.test) {
			bs[i].tests = append(bs[i].tests, m.test)
		}
	}
	return bs
}

// runner runs tests.
type runner struct {
	root string // of the repository
	dir  string // for changed files
}

// sound runs tests without a mutation; each has to run and pass.
func (r *runner) sound(ctx context.Context, b baseline) error {
	out := r.goTest(ctx, "", b.pkg, b.tests, b.args, "600s")
	for _, test := range b.tests {
		if !strings.Contains(out, "--- PASS: "+test+" ") {
			return fmt.Errorf("%s %s does not pass without a mutation:\n%s", b.pkg, test, tail(out))
		}
	}
	return nil
}

// tail is the end of an output.
func tail(out string) string {
	const most = 4 << 10
	return out[max(0, len(out)-most):]
}

// mutated runs the test of a mutation, the i-th.
func (r *runner) mutated(ctx context.Context, i int, m *mutation) (verdict, string) {
	overlay, err := r.overlay(i, m)
	if err != nil {
		return broken, err.Error()
	}
	out := r.goTest(ctx, overlay, m.pkg, []string{m.test}, m.args, "120s")
	return judge(out, m.test), out
}

// judge reads the output of a run of one test. A test that ends its process, or not at all, has failed as well.
func judge(out, test string) verdict {
	switch {
	case strings.Contains(out, "--- FAIL: "+test+" "):
		return killed
	case strings.Contains(out, "--- PASS: "+test+" "):
		return survived
	case strings.Contains(out, "=== RUN   "+test+"\n") && (strings.Contains(out, "\npanic: ") || strings.Contains(out, "\nfatal error: ")):
		return killed
	}
	return broken
}

// overlay writes the changed file, and the list that tells the compiler of it.
func (r *runner) overlay(i int, m *mutation) (string, error) {
	name, err := filepath.Abs(filepath.Join(r.root, m.file))
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	text, err := m.apply(string(content))
	if err != nil {
		return "", err
	}
	changed := filepath.Join(r.dir, fmt.Sprint(i, ".go"))
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {name: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(r.dir, fmt.Sprint(i, ".json"))
	return overlay, os.WriteFile(overlay, list, 0o600)
}

func (r *runner) goTest(ctx context.Context, overlay, pkg string, tests []string, args, timeout string) string {
	flags := []string{"test", "-v", "-count=1", "-vet=off", "-timeout", timeout, "-run", "^(" + strings.Join(tests, "|") + ")$"}
	if overlay != "" {
		flags = append(flags, "-overlay", overlay)
	}
	flags = append(flags, "./"+pkg)
	cmd := exec.CommandContext(ctx, "go", append(flags, strings.Fields(args)...)...)
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		out = fmt.Append(out, err, "\n")
	}
	return string(out)
}
