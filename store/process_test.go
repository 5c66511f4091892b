package store_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
)

// The test binary is its own victim: started with this variable it opens a store and appends until it is killed, or until
// it has appended enough and ends without closing anything.
const childEnv = "FUSIONMQ_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		if err := child(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // the store is not closed: this is the crash
	}
	goleak.VerifyTestMain(m)
}

// child appends as spec says, "directory|bytes"; with 0 bytes it prints each answer and goes on for ever. "directory|kill N" is
// killChild.
func child(spec string) error {
	dir, size, _ := strings.Cut(spec, "|")
	if round, ok := strings.CutPrefix(size, "kill "); ok {
		return killChild(dir, round)
	}
	total, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	s, err := store.Open(store.Options{Dir: dir})
	if err != nil {
		return err
	}
	c := meta.DefaultTopic("Bench")
	if err := s.Topics().Put(c); err != nil {
		return err
	}
	if total > 0 {
		return fill(s, total)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rs := make([]store.Result, 1)
			for i := 0; ; i++ {
				body := fmt.Sprintf("%d/%d %s", g, i, strings.Repeat("x", i%900))
				s.Append([]store.Message{{Topic: "Bench", Queue: int32(g % 2), Body: []byte(body)}}, rs)
				if rs[0].Err != nil {
					return
				}
				mu.Lock()
				fmt.Printf("%d %d %d %d %d\n", g%2, rs[0].QueueOffset, rs[0].Address, g, i)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return s.Err()
}

func fill(s *store.Store, total int64) error {
	ms, rs := benchMessages(64), make([]store.Result, 64)
	for s.Bounds().Max < total {
		s.Append(ms, rs)
		for i := range rs {
			if rs[i].Err != nil {
				return rs[i].Err
			}
		}
	}
	return nil
}

func startChild(t testing.TB, dir string, total int64) (*exec.Cmd, io.Reader) {
	t.Helper()
	return startChildFor(t, dir, strconv.FormatInt(total, 10))
}

func startChildFor(t testing.TB, dir, job string) (*exec.Cmd, io.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s", childEnv, dir, job))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// Law 4: what was answered by an async topic survives the end of the process, whenever it comes, in its place of its queue (fault STO-01).
func TestLaw4AsyncSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	cmd, out := startChild(t, dir, 0)
	type answer struct {
		queue, offset, address int64
		g, i                   int
	}
	var acked []answer
	in := bufio.NewScanner(out)
	for in.Scan() {
		var a answer
		if _, err := fmt.Sscan(in.Text(), &a.queue, &a.offset, &a.address, &a.g, &a.i); err != nil {
			break // the last line was cut by the kill
		}
		if acked = append(acked, a); len(acked) == 3000 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed, so this is an error
	if len(acked) < 3000 {
		t.Fatalf("the child stopped after %d answers", len(acked))
	}
	s := open(t, store.Options{Dir: dir})
	for _, a := range acked {
		var es [1]queue.Entry
		n, err := s.Queue("Bench", int32(a.queue), true).Read(a.offset, es[:])
		if n != 1 || err != nil || es[0].Address != a.address {
			t.Fatalf("queue %d offset %d: %d entries, %v, %+v, want address %d", a.queue, a.offset, n, err, es[0], a.address)
		}
		b, release, err := s.Record(es[0])
		if err != nil {
			t.Fatal(err)
		}
		v, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%d/%d %s", a.g, a.i, strings.Repeat("x", a.i%900)); string(v.Body()) != want {
			t.Fatalf("queue %d offset %d has body %.30q, want %.30q", a.queue, a.offset, v.Body(), want)
		}
		release()
	}
}

// Start time. FUSIONMQ_BENCH_START_BYTES is how much log there is, 512 MiB by default; the budget is for 10 GB:
//
//	FUSIONMQ_BENCH_START_BYTES=10000000000 go test -run '^$' -bench Start -benchtime 1x ./store
func BenchmarkStart(b *testing.B) {
	total := int64(512 << 20)
	if v := os.Getenv("FUSIONMQ_BENCH_START_BYTES"); v != "" {
		var err error
		if total, err = strconv.ParseInt(v, 10, 64); err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	for _, how := range []string{"killed", "clean"} {
		b.Run(fmt.Sprintf("bytes=%d/stop=%s", total, how), func(b *testing.B) {
			var took time.Duration
			for range b.N {
				if how == "killed" {
					cmd, _ := startChild(b, dir, total)
					if err := cmd.Wait(); err != nil {
						b.Fatal(err)
					}
				}
				began := time.Now()
				s, err := store.Open(store.Options{Dir: dir, Events: func(e store.Event) { b.Log(e.Name, e.Attrs) }})
				if err != nil {
					b.Fatal(err)
				}
				took += time.Since(began)
				if s.Bounds().Max < total {
					b.Fatalf("log ends at %d, want at least %d", s.Bounds().Max, total)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "open-ms")
		})
	}
}
