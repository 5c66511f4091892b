package store_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
)

var (
	crashKills = flag.Int("crash.kills", 5, "how often the kill loop kills the process on one directory")
	killSeed   = flag.Uint64("crash.killseed", 0, "run the kill loop with this seed; 0 takes a random one")
)

func killOptions(dir string) store.Options {
	return store.Options{Dir: dir, SegmentBytes: 1 << 20, CheckpointBytes: 256 << 10}
}

// killChild appends to a sync and an async topic from many goroutines until it is killed, and prints each answer with the hash of what was sent.
func killChild(dir, round string) error {
	fmt.Println("opening")
	s, err := store.Open(killOptions(dir))
	if err != nil {
		return err
	}
	for topic, d := range map[string]meta.Durability{"Sync": meta.Sync, "Async": meta.Async} {
		c := meta.DefaultTopic(topic)
		c.Attributes = map[string]string{meta.DurabilityAttribute: d.String()}
		if err := s.Topics().Put(c); err != nil {
			return err
		}
	}
	n, err := strconv.ParseUint(round, 10, 64)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for g := range 8 {
		topic := []string{"Sync", "Async"}[min(g/6, 1)] // a sync takes long, so more goroutines ask for it
		rng := rand.New(rand.NewPCG(n, uint64(g)))
		wg.Go(func() {
			for i := 0; ; i++ {
				ms, rs := make([]store.Message, 1+rng.IntN(3)), make([]store.Result, 3)
				for k := range ms {
					body := make([]byte, 1+rng.IntN(2000))
					for j := range body {
						body[j] = byte(rng.Uint32())
					}
					ms[k] = store.Message{Topic: topic, Queue: rng.Int32N(2), Body: body, Properties: crashProperties(i)}
				}
				s.Append(ms, rs[:len(ms)])
				mu.Lock()
				for k, m := range ms {
					if rs[k].Err != nil {
						mu.Unlock()
						return
					}
					fmt.Printf("%s %d %d %d %s .\n", topic, m.Queue, rs[k].QueueOffset, rs[k].Address, killHash(m.Body))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return s.Err()
}

func killHash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// killAnswer is a message that was acknowledged.
type killAnswer struct {
	topic  string
	queue  int32
	offset int64
	at     int64
	hash   string
}

// killWhile reads answers until there are enough of both topics, kills the child, and goes on to read what it had printed.
func killWhile(t *testing.T, cmd *exec.Cmd, in *bufio.Scanner, most, synced int) (acked []killAnswer) {
	killed := false
	for in.Scan() {
		var a killAnswer
		var dot string
		if n, _ := fmt.Sscan(in.Text(), &a.topic, &a.queue, &a.offset, &a.at, &a.hash, &dot); n == 6 && dot == "." {
			acked = append(acked, a)
			if a.topic == "Sync" {
				synced--
			}
		}
		if !killed && len(acked) >= most && synced <= 0 {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed, so this is an error
	if !killed {
		t.Fatalf("the child stopped by itself after %d answers", len(acked))
	}
	return acked
}

// Law 4 on real files: processes are killed on one directory again and again, in the middle of sends and of openings, and views are
// deleted in between. After each kill everything that was ever acknowledged is where its answer said, with its bytes.
func TestLaw4KillLoop(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.killseed=%d -crash.kills=%d", seed, *crashKills)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	var acked []killAnswer
	for round := range *crashKills {
		cmd, out := startChildFor(t, dir, fmt.Sprint("kill ", round))
		acked = append(acked, killWhile(t, cmd, bufio.NewScanner(out), 1+rng.IntN(1500), 1+rng.IntN(20))...)
		deleted := ""
		switch round % 3 {
		case 1:
			deleted = store.LayoutOf(dir).Own
		case 2:
			deleted = store.LayoutOf(dir).Index
		}
		if deleted != "" {
			if err := os.RemoveAll(deleted); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(2) == 0 { // in the middle of the opening after the kill
			cmd, out := startChildFor(t, dir, fmt.Sprint("kill ", round+*crashKills))
			acked = append(acked, killWhile(t, cmd, bufio.NewScanner(out), 0, 0)...)
		}
		killed(t, dir, round, acked)
		if t.Failed() {
			return
		}
	}
}

// killed looks for all that was acknowledged, and has the directory checked.
func killed(t *testing.T, dir string, round int, acked []killAnswer) {
	s, err := tryOpen(t, killOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	lost, least := 0, int64(len(acked))
	for _, a := range acked {
		if err := killFind(s, a); err != nil {
			if lost++; lost <= 10 {
				t.Errorf("round %d: %s/%d offset %d at %d: %v", round, a.topic, a.queue, a.offset, a.at, err)
			}
		}
	}
	there := int64(0)
	s.Queues(func(q *queue.Queue) {
		if !strings.HasPrefix(q.Topic().Name(), store.SystemPrefix) {
			_, high := q.Range()
			there += high
		}
	})
	if there < least {
		t.Errorf("round %d: %d messages are there, %d were acknowledged", round, there, least)
	}
	t.Logf("round %d: %d acknowledged, %d there, %d lost, log of %d bytes", round, least, there, lost, s.Bounds().Max)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found(t, killOptions(dir))
}

// killFind reads a message by its place and by its address.
func killFind(s *store.Store, a killAnswer) error {
	q := s.Queue(a.topic, a.queue, false)
	if q == nil {
		return errors.New("no such queue")
	}
	var es [1]queue.Entry
	if n, err := q.Read(a.offset, es[:]); err != nil {
		return err
	} else if n != 1 {
		return errors.New("nothing is there")
	}
	if es[0].Address != a.at {
		return fmt.Errorf("the entry is at %d", es[0].Address)
	}
	b, release, err := s.RecordAt(a.at)
	if err != nil {
		return err
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		return err
	}
	if h := killHash(v.Body()); h != a.hash {
		return fmt.Errorf("the body of %d bytes has hash %s, sent was %s", len(v.Body()), h, a.hash)
	}
	return nil
}
