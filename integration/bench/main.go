// Command bench measures the budgets of the design that the running system touches, each beside its baseline in the same run, and prints
//
//	budget | measured | baseline | ratio | reached
//
// Figures are ratios of what ran here a moment ago; absolute numbers depend on the machine and gate nothing. The baselines are measured by
// this program too: a bare framed echo and a bare framed push (processes of their own, no broker behind), the benchmarks of the store module, a MariaDB,
// and, with -peer rocketmq,nats, a real Apache RocketMQ and NATS JetStream on loopback. A peer that cannot be started is reported as not measured.
//
// The broker is always a process of its own, and CPU is that process's, from /proc.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// options of a run.
type options struct {
	server  string // the binary
	peer    string // any of "rocketmq" and "nats", separated by commas
	only    *regexp.Regexp
	window  time.Duration // of one measured window
	runs    int           // windows a cell; the median counts
	warm    time.Duration // load before the first window of FusionMQ
	dir     string        // scratch
	fill    int64         // bytes of data for the start budget
	conns   int           // idle push connections
	store   string        // -benchtime of the store's benchmarks
	cache   bool          // fill the page cache before each section
	waiting int64         // things that wait when their memory is measured
	behind  int64         // messages that groups are behind before the writes beside them are measured
}

// section is one group of budgets that share a set-up.
type section struct {
	name string
	run  func(*bench) error
}

var sections = []section{
	{"store", (*bench).storeBudgets},
	{"memory", (*bench).memoryBudgets},
	{"send", (*bench).sendBudgets},
	{"groups", (*bench).groupsBudgets},
	{"topics", (*bench).topicsBudgets},
	{"nats", (*bench).natsBudgets},
	{"push", (*bench).pushBudgets},
	{"idle", (*bench).idleBudgets},
	{"start", (*bench).startBudgets},
}

// bench is one run.
type bench struct {
	options
	table  table
	peers  *peers    // nil without -peer rocketmq
	nats   *natsPeer // nil without -peer nats
	others []float64 // cores that other processes used, by window
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == bareCommand {
		bareMain(os.Args[2])
		return
	}
	o := options{}
	var only string
	flag.StringVar(&o.server, "server", "bin/fusionmq", "the binary to measure")
	flag.StringVar(&o.peer, "peer", "", "also measure these peers: rocketmq (needs Java and Maven), nats (built from the Go module proxy), separated by commas")
	flag.StringVar(&only, "only", "", "run the sections whose name matches: store memory send groups topics nats push idle start")
	flag.DurationVar(&o.window, "window", 3*time.Second, "length of one measured window")
	flag.IntVar(&o.runs, "runs", 3, "windows a cell; the median counts")
	flag.DurationVar(&o.warm, "warm", 2*time.Second, "load before the first window")
	flag.StringVar(&o.dir, "dir", "", "scratch folder (default: a new one below the system's)")
	flag.Int64Var(&o.fill, "fill", 10<<30, "bytes of data for the start budget")
	flag.IntVar(&o.conns, "conns", 19000, "idle push connections; the descriptor limit may allow fewer")
	flag.StringVar(&o.store, "benchtime", "1s", "-benchtime of the store's benchmarks")
	flag.Int64Var(&o.behind, "behind", 10_000_000, "messages of 128 B that 50 groups are behind before the writes of the section groups (three brokers get them: 9 GB of disk)")
	flag.Int64Var(&o.waiting, "waiting", 10_000_000, "halves, delays and retries that wait when their memory is measured (4 GB of disk); 0 leaves that out")
	flag.BoolVar(&o.cache, "cache", true, "fill the page cache before each section, as it is on a machine that has stored messages for a day")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		fmt.Fprintln(os.Stderr, "bench: -only:", err)
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if _, err := os.Stat(o.server); err != nil {
		return fmt.Errorf("no server binary: %w (make build)", err)
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "fusionmq-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	b := &bench{options: o}
	for kind := range strings.SplitSeq(o.peer, ",") {
		switch kind {
		case "":
		case "rocketmq":
			b.peers = newPeers(filepath.Join(o.dir, "peer"))
		case "nats":
			b.nats = newNATS(filepath.Join(o.dir, "nats"))
		default:
			return fmt.Errorf("-peer: %q is neither rocketmq nor nats", kind)
		}
	}
	var failed error
	var cache pageCache
	for _, s := range sections {
		if !o.only.MatchString(s.name) {
			continue
		}
		fmt.Printf("\n== %s\n", s.name)
		if o.cache {
			if err := cache.fill(o.dir); err != nil {
				return fmt.Errorf("fill the page cache: %w", err)
			}
		}
		if err := s.run(b); err != nil {
			fmt.Printf("%s: not measured: %v\n", s.name, err)
			failed = fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Println()
	b.table.print(os.Stdout)
	fmt.Println("\n" + b.quietness())
	return failed
}
