// Command gotest runs `go test -json` and prints what a person wants to read: one line a package, the output of what failed,
// and at the end how many tests passed, failed and were skipped. A skipped test is a failure: a test that skips proves nothing.
// No result comes from the cache: tests read files of other modules, of which the cache knows nothing.
//
//	gotest [go test flags] packages...
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"
	"time"
)

// event is one line of test2json; see `go doc cmd/test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// report collects the events of one run.
type report struct {
	out                     io.Writer
	output                  map[string][]string // package + "\x00" + test
	passed, failed, skipped int
	packages, bad           int
	tally                   map[string]int // tests a package has finished
	failures, skips         []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[string][]string{}, tally: map[string]int{}}
}

func (r *report) add(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.finish(e)
		} else {
			r.count(e, key)
		}
		delete(r.output, key)
	}
}

func (r *report) count(e event, key string) {
	r.tally[e.Package]++
	name := e.Package + " " + e.Test
	switch e.Action {
	case "pass":
		r.passed++
		return
	case "skip":
		r.skipped++
		r.skips = append(r.skips, name)
	case "fail":
		r.failed++
		r.failures = append(r.failures, name)
	}
	fmt.Fprint(r.out, strings.Join(r.output[key], ""))
}

func (r *report) finish(e event) {
	if e.Action == "skip" { // no test files
		return
	}
	r.packages++
	word := "ok  "
	if e.Action == "fail" {
		word = "FAIL"
		r.bad++
		fmt.Fprint(r.out, strings.Join(r.output[e.Package+"\x00"], ""))
		for k, lines := range r.output { // a panic or a time-out leaves tests without an end
			if pkg, test, _ := strings.Cut(k, "\x00"); pkg == e.Package && test != "" {
				r.failed++
				r.failures = append(r.failures, pkg+" "+test+" (did not end)")
				fmt.Fprint(r.out, strings.Join(lines, ""))
				delete(r.output, k)
			}
		}
	}
	fmt.Fprintf(r.out, "%s %-58s %5d tests %7.1fs\n", word, e.Package, r.tally[e.Package], e.Elapsed)
}

// summary prints the end of the run and reports whether everything passed.
func (r *report) summary(took time.Duration) bool {
	sort.Strings(r.failures)
	sort.Strings(r.skips)
	for _, f := range r.failures {
		fmt.Fprintln(r.out, "failed:", f)
	}
	for _, s := range r.skips {
		fmt.Fprintln(r.out, "skipped:", s)
	}
	fmt.Fprintf(r.out, "go test: %d passed, %d failed, %d skipped in %d packages (%d not ok), %s\n",
		r.passed, r.failed, r.skipped, r.packages, r.bad, took.Round(time.Second))
	return r.failed == 0 && r.skipped == 0 && r.bad == 0 && r.passed > 0
}

func main() {
	start := time.Now()
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	r := newReport(os.Stdout)
	if err := r.read(pipe); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	err = cmd.Wait()
	ok := r.summary(time.Since(start))
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// read consumes test2json's lines; a line that is no event is passed through.
func (r *report) read(in io.Reader) error {
	sc := bufio.NewReader(in)
	for {
		line, err := sc.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.add(e)
			} else {
				fmt.Fprintf(r.out, "%s", line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
