// Command roundtrip takes a store directory from a real Apache broker to FusionMQ and back: a broker of each version writes it and is stopped or
// killed, `fusionctl store check` finds it sound, FusionMQ serves every message from it and takes more, `fusionctl store export` writes a plain directory, and
// a real 5.3.3 broker serves every message from that. It needs Java and Maven, which fetches the published brokers; `make roundtrip` runs it.
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
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/apache"
	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

const (
	topic  = "Roundtrip"
	queues = 4
	each   = 100 // messages of a queue that the first broker gets
	delays = 5
)

// options make the brokers small: segments of 4 MiB, so that a directory has several files.
var options = apache.Options{NameServerHeap: "128m", Heap: "512m", Direct: "512m",
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
	back, err := apache.Fetch("5.3.3", filepath.Join(dir, "back"))
	if err != nil {
		return err
	}
	for _, version := range versions {
		there, err := apache.Fetch(version, filepath.Join(dir, version))
		if err != nil {
			return err
		}
		for _, kill := range []bool{false, true} {
			began := time.Now()
			how := "stopped"
			if kill {
				how = "killed"
			}
			if err := trip(bins, there, back, filepath.Join(dir, version+"-"+how), kill); err != nil {
				return fmt.Errorf("%s, %s: %w", version, how, err)
			}
			fmt.Printf("ok  %s %-8s to FusionMQ and back to 5.3.3 in %.0f s\n", version, how, time.Since(began).Seconds())
		}
	}
	return nil
}

// trip takes one directory there and back.
func trip(bins proc.Programs, there, back *apache.Release, dir string, kill bool) error {
	want := make([][]string, queues)
	b, err := there.Start(dir, options)
	if err != nil {
		return err
	}
	err = fill(b.Addr, want, each, true)
	if kill {
		b.Kill()
	} else {
		b.Stop()
	}
	if err != nil {
		return err
	}
	if err := ctl(bins, nil, "store", "check", dir); err != nil {
		return err
	}
	s, err := proc.Start(bins.Server, dir)
	if err != nil {
		return err
	}
	err = compare(s.Addr["broker"], want)
	if err == nil {
		err = fill(s.Addr["broker"], want, 10, false)
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
	var sum struct{ Delays, Unreadable int }
	out := dir + "-export"
	if err := ctl(bins, &sum, "store", "export", dir, out, "-o", "json"); err != nil {
		return err
	}
	if sum.Delays != delays || sum.Unreadable != 0 {
		return fmt.Errorf("export has %d delays and leaves out %d messages, want %d and 0", sum.Delays, sum.Unreadable, delays)
	}
	if err := ctl(bins, nil, "store", "check", out); err != nil {
		return err
	}
	if b, err = back.Start(out, options); err != nil {
		return err
	}
	defer b.Stop()
	if err := compare(b.Addr, want); err != nil {
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

// fill sends n messages to each queue and notes them in want, and with waiting some that are delayed for two hours.
func fill(addr string, want [][]string, n int, waiting bool) error {
	s, err := raw.NewSender(addr, "roundtrip")
	if err != nil {
		return err
	}
	defer s.C.Close()
	if waiting {
		if err := raw.CreateTopic(s.C, topic, queues); err != nil {
			return fmt.Errorf("create topic: %w", err)
		}
	}
	type sent struct {
		raw.Sent
		body string
		err  error
	}
	done := make(chan sent, n*queues)
	for i := range n {
		for q := range queues {
			body := fmt.Sprintf("%d/%d of %s %s", q, i, addr, strings.Repeat(".", i*13))
			s.Go(topic, q, []byte(body), func(at raw.Sent, err error) { done <- sent{at, body, err} })
		}
	}
	for q := range queues {
		want[q] = append(want[q], make([]string, n)...)
	}
	for range n * queues {
		m := <-done
		if m.err != nil {
			return m.err
		}
		if q := want[m.Queue]; m.Offset >= int64(len(q)) || q[m.Offset] != "" {
			return fmt.Errorf("%.60q was stored at %d of queue %d, where another message is", m.body, m.Offset, m.Queue)
		}
		want[m.Queue][m.Offset] = m.body // a broker need not keep the order of what comes in at once
	}
	if !waiting {
		return nil
	}
	for i := range delays {
		a, err := s.C.Do(raw.CodeSendV2, fmt.Appendf(nil, "delayed %d", i), "a", "roundtrip", "b", topic, "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", fmt.Sprint(time.Now().UnixMilli()),
			"h", "0", "i", fmt.Sprintf("DELAY\x0118\x02UNIQ_KEY\x01%s\x02", raw.ID(uint64(i))), "j", "0", "k", "false", "m", "false")
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			return fmt.Errorf("delayed message: %w", err)
		}
	}
	return nil
}

// compare pulls every queue and compares what comes with what was sent, offset by offset.
func compare(addr string, want [][]string) error {
	c, err := raw.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for q, bodies := range want {
		deadline := time.Now().Add(20 * time.Second) // a broker that has just started may still be looking at its log
		for next := int64(0); next < int64(len(bodies)); {
			var wrong error
			from := next
			next, err = raw.Pull(c, "roundtrip", topic, q, from, 0, func(m raw.Message) {
				if o := m.QueueOffset; wrong == nil && (o >= int64(len(bodies)) || string(m.Body) != bodies[o]) {
					wrong = fmt.Errorf("queue %d has %.60q at %d", q, m.Body, o)
				}
			})
			if err = errors.Join(err, wrong); err != nil {
				return err
			}
			if next <= from {
				if time.Now().After(deadline) {
					return fmt.Errorf("queue %d ends at %d, want %d", q, from, len(bodies))
				}
				time.Sleep(200 * time.Millisecond)
				next = from
			}
		}
	}
	return nil
}
