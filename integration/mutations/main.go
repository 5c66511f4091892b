// Command mutations breaks the store on purpose, one line at a time, and looks whether the tests that are named after a law see it.
//
// A mutation is a text of a file and what is put in its place; the test that has to fail is named beside it. Nothing in the working tree is
// changed: `go test -overlay` compiles the changed text instead of the file. A text that is not in its file exactly once, a test that
// fails without the mutation and a mutation that does not compile are errors, so that the table cannot rot unseen.
//
//	mutations [-small] [-only REGEXP] [-j N] [-v]
//
// It prints a line for each mutation and ends with 1 when one has survived: a test that does not see its law broken proves nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"time"
)

func main() {
	small := flag.Bool("small", false, "only those that are quick, a few for each law; for CI")
	only := flag.String("only", "", "only those whose law, name, file or test matches this regular expression")
	at := flag.Int("j", 2, "how many run at a time")
	verbose := flag.Bool("v", false, "print the output of each test that saw its mutation")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil || flag.NArg() > 0 || *at < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var ms []mutation
	for _, m := range table() {
		if (m.small || !*small) && match.MatchString(fmt.Sprintf("law %s: %s %s %s", m.law, m.name, m.file, m.test)) {
			ms = append(ms, m)
		}
	}
	start := time.Now()
	ok, err := runAll(ctx, ms, *at, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(1)
	}
	fmt.Printf("%d mutations in %s\n", len(ms), time.Since(start).Round(time.Second))
	if !ok || len(ms) == 0 {
		os.Exit(1)
	}
}

// runAll runs the tests without any mutation, then with each, and prints what happened. It reports whether every one was killed.
func runAll(ctx context.Context, ms []mutation, at int, verbose bool) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	r := runner{root: ".", dir: dir}
	sound := baselines(ms)
	errs := make([]error, len(sound))
	each(at, len(sound), func(i int) { errs[i] = r.sound(ctx, sound[i]) })
	for _, err := range errs {
		if err != nil {
			return false, err
		}
	}
	fmt.Printf("%-4s %-74s %-72s %-9s %7s\n", "law", "mutation", "test", "", "seconds")
	ok = true
	var mu sync.Mutex
	each(at, len(ms), func(i int) {
		m := &ms[i]
		began := time.Now()
		how, out := r.mutated(ctx, i, m)
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%-4s %-74s %-72s %-9s %7.1f\n", m.law, m.name, m.pkg+" "+m.test, how, time.Since(began).Seconds())
		if how != killed {
			ok = false
		}
		if how == broken || verbose {
			fmt.Println(out)
		}
	})
	return ok, ctx.Err()
}

// each calls fn for 0 to n-1, at most at a time.
func each(at, n int, fn func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range at {
		wg.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
