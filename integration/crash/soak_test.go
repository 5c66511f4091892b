package crash

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/push"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

// soakRate bounds what a soak stores: messages a second, about 1 KiB each.
const soakRate = 5_000

// TestSoakMixedLoadWithRestarts produces, pushes and pulls while the server is stopped and killed in turns, and checks everything at the end.
func TestSoakMixedLoadWithRestarts(t *testing.T) {
	seed := rand.Uint64N(1_000_000)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const topic, group, queues = "Soak", "S-soak", 4
	l := newLedger(seed)
	dir := t.TempDir()
	end := time.Now().Add(soakDuration(t))
	var s *proc.Server
	defer func() {
		if s != nil {
			s.Kill()
			if t.Failed() {
				t.Logf("output of the server:\n%s", s.Output())
			}
		}
	}()
	for round := 0; time.Now().Before(end); round++ {
		var err error
		if s, err = proc.Start(programs.Server, dir); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		if round == 0 {
			c, err := raw.Dial(s.Addr["broker"])
			if err != nil {
				t.Fatal(err)
			}
			err = raw.CreateTopic(c, topic, queues)
			c.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		sub, err := push.Subscribe(s.Addr["notify"], group, topic, l.handle)
		if err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		span := min(time.Duration(1+r.IntN(8))*time.Second, max(time.Until(end), time.Second))
		sent, _, _, _ := l.counts()
		_, acked, _, _ := l.counts()
		x := send(t, s, l, topic, queues, acked+int(span.Seconds()*soakRate))
		timer := time.NewTimer(span)
		<-timer.C
		usage, err := s.Usage()
		if err != nil {
			t.Fatalf("seed %d round %d: the server is gone: %v\n%s", seed, round, err, s.Output())
		}
		close(x.stop)
		if r.IntN(2) == 0 {
			s.Kill()
		} else if code, took, err := s.Stop(10 * time.Second); code != 0 || err != nil {
			t.Fatalf("seed %d round %d: SIGTERM: exit %d after %s, %v", seed, round, code, took, err)
		}
		x.end(t)
		sub.Close()
		now, acked, pushed, again := l.counts()
		t.Logf("round %d: %s, %d sent, in all %d acknowledged, %d pushed, %d repeats, %d MiB anonymous memory",
			round, span.Round(time.Second), now-sent, acked, pushed, again, usage.Anonymous>>20)
	}
	var err error
	if s, err = proc.Start(programs.Server, dir); err != nil {
		t.Fatal(err)
	}
	l.verify(t, s.Addr["broker"], topic, queues)
	sub, err := push.Subscribe(s.Addr["notify"], group, topic, l.handle)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	l.allPushed(t, quiet)
	l.noneWrong(t)
	sent, acked, pushed, again := l.counts()
	t.Logf("seed %d: %d sent, %d acknowledged, %d reached the push group, %d repeats", seed, sent, acked, pushed, again)
}
