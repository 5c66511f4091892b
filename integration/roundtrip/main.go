// Command roundtrip takes a store directory from a real Apache broker to FusionMQ and back: a broker of each version writes it and is stopped or
// killed, `fusionctl store check` finds it sound, FusionMQ serves every message from it and takes more, `fusionctl store export` writes a plain directory, and
// a real 5.3.3 broker serves every message from that. What waits on the way, delays and timers, undecided transactions, what was sent back, what a pop
// consumer has not acknowledged, is counted, or comes while somebody looks. It needs Java and Maven, which fetches the published brokers; `make roundtrip` runs it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/apache"
	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

// options make the brokers small: segments of 4 MiB, so that a directory has several files.
var options = apache.Options{NameServerHeap: "128m", Heap: "512m", Direct: "512m", Java: []string{"-XX:TieredStopAtLevel=1"}, // they end before a better compiler pays
	Lines: []string{"mappedFileSizeCommitLog=4194304", "maxHashSlotNum=10000", "maxIndexNum=40000", "fileReservedTime=72", "waitTimeMillsInSendQueue=20000"}}

func main() {
	versions := flag.String("versions", "4.9.7,5.3.3", "versions of the broker that writes the directory")
	keep := flag.String("dir", "", "work in this directory and leave it (default: a temporary one)")
	flag.Parse()
	if err := run(strings.Split(*versions, ","), *keep); err != nil {
		fmt.Fprintln(os.Stderr, "roundtrip:", err)
		os.Exit(1)
	}
}

// run does the versions beside each other: most of the time a broker starts or something is waited for.
func run(versions []string, dir string) error {
	if dir == "" {
		d, err := os.MkdirTemp("", "roundtrip-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(d)
		dir = d
	}
	bins, err := proc.Build(dir)
	if err != nil {
		return err
	}
	last, err := apache.Fetch("5.3.3", filepath.Join(dir, "maven"))
	if err != nil {
		return err
	}
	there, back := make([]*apache.Release, len(versions)), make([]*apache.Release, len(versions))
	for i, version := range versions { // one after the other: they share what Maven keeps
		if version == "5.3.3" {
			there[i], err = last.In(filepath.Join(dir, version))
		} else {
			there[i], err = apache.Fetch(version, filepath.Join(dir, version))
		}
		if err == nil {
			back[i], err = last.In(filepath.Join(dir, version+"-back"))
		}
		if err != nil {
			return err
		}
	}
	errs := make([]error, len(versions))
	var wg sync.WaitGroup
	for i, version := range versions {
		wg.Go(func() { errs[i] = both(bins, there[i], back[i], dir, version) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// both takes a directory of one version there and back after a clean stop, and another one after a kill.
func both(bins proc.Programs, there, back *apache.Release, dir, version string) error {
	for _, how := range []string{"stopped", "killed"} {
		began := time.Now()
		if err := trip(bins, there, back, filepath.Join(dir, version+"-"+how), version, how == "killed"); err != nil {
			return fmt.Errorf("%s, %s: %w", version, how, err)
		}
		fmt.Printf("ok  %s %-8s to FusionMQ and back to 5.3.3 in %.0f s\n", version, how, time.Since(began).Seconds())
	}
	return nil
}

// trip takes one directory there and back.
func trip(bins proc.Programs, there, back *apache.Release, dir, version string, kill bool) error {
	o := options
	o.Lines = append(o.Lines[:len(o.Lines):len(o.Lines)], "enableLmq=true", "enableMultiDispatch=true")
	b, err := there.Start(dir, o)
	if err != nil {
		return err
	}
	w := newWanted(version)
	err = w.fill(b.Addr)
	if kill {
		b.Kill()
	} else {
		b.Stop()
	}
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if err := ctl(bins, nil, "store", "check", dir); err != nil {
		return err
	}
	s, err := proc.Start(bins.Server, dir)
	if err != nil {
		return err
	}
	if err = w.compare(s.Addr["broker"], !kill); err == nil {
		err = w.send(s.Addr["broker"], 10)
	}
	if code, _, e := s.Stop(30 * time.Second); e != nil || code != 0 {
		err = errors.Join(err, fmt.Errorf("FusionMQ ended with code %d: %w", code, e))
	}
	if err != nil {
		return fmt.Errorf("FusionMQ on the broker's directory: %w", err)
	}
	if err := ctl(bins, nil, "store", "check", dir); err != nil {
		return err
	}
	var sum struct{ Halves, Delays, Unreadable int }
	out := dir + "-export"
	if err := ctl(bins, &sum, "store", "export", dir, out, "-o", "json"); err != nil {
		return err
	}
	most := halves
	if kill {
		most++ // a broker writes the marks of what was rolled back a little later, and asks again about those that it has lost
	}
	if soon := len(w.soon); sum.Delays < w.late || sum.Delays > w.late+soon || sum.Halves < halves || sum.Halves > most || sum.Unreadable != 0 {
		return fmt.Errorf("export has %d transactions and %d messages that wait, and leaves out %d; want %d to %d, %d to %d, and 0", sum.Halves, sum.Delays, sum.Unreadable, halves, most, w.late, w.late+soon)
	}
	if err := ctl(bins, nil, "store", "check", out); err != nil {
		return err
	}
	if b, err = back.Start(out, options); err != nil {
		return err
	}
	defer b.Stop()
	if err = w.compare(b.Addr, !kill); err == nil {
		err = w.arrive(b.Addr)
	}
	if err != nil {
		return fmt.Errorf("5.3.3 on the export: %w", err)
	}
	return nil
}

// ctl runs fusionctl, with its output as JSON to v when that is not nil.
func ctl(bins proc.Programs, v any, args ...string) error {
	out, err := exec.Command(bins.Ctl, args...).Output()
	if err != nil {
		return fmt.Errorf("fusionctl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(out, v)
}
