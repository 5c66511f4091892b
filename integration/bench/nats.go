package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rawnats"
)

// jetStream is NATS with a stream of file storage for each topic; it has no queues.
type jetStream struct{}

func (jetStream) create(addr, topic string, _ int) error {
	c, err := rawnats.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.CreateStream(topic)
}

type natsSender struct{ c *rawnats.Conn }

func (s natsSender) Go(topic string, _ int, body []byte, done func(raw.Sent, error)) {
	s.c.Publish(topic, body, func(seq int64, err error) { done(raw.Sent{Offset: seq}, err) })
}

func (jetStream) sender(addr string) (sender, func(), error) {
	c, err := rawnats.Dial(addr)
	if err != nil {
		return nil, nil, err
	}
	return natsSender{c}, c.Close, nil
}

// natsClient is a push consumer without acknowledgements, the cheapest that JetStream has.
func natsClient(addr, _, topic string, handle func([]byte)) (closer, error) {
	c, err := rawnats.Dial(addr)
	if err != nil {
		return nil, err
	}
	if err := c.Consume(topic, handle); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// pullClient reads a topic of ours with one held pull a queue.
func pullClient(addr, group, topic string, handle func([]byte)) (closer, error) {
	c, err := raw.Dial(addr)
	if err != nil {
		return nil, err
	}
	for q := range queues {
		go func() { // until the connection ends
			var next int64
			var err error
			for err == nil {
				next, err = raw.Pull(c, group, topic, q, next, 15*time.Second, func(m raw.Message) { handle(m.Body) })
			}
		}()
	}
	return c, nil
}

// natsPeer builds and runs the NATS server that peers/nats pins.
type natsPeer struct {
	dir, binary string
	err         error // why there is none
}

func newNATS(dir string) *natsPeer {
	p := &natsPeer{dir: dir, binary: filepath.Join(dir, "nats-server")}
	if p.err = os.MkdirAll(dir, 0o755); p.err != nil {
		return p
	}
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "build", "-o", p.binary, "github.com/nats-io/nats-server/v2")
	cmd.Dir = filepath.Join(filepath.Dir(file), "peers", "nats")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		p.err = fmt.Errorf("go build: %w: %s", err, strings.Join(strings.Fields(string(text)), " ")) // one line of the table
	}
	return p
}

// start runs the server with JetStream and its defaults on a free port and returns when it answers.
func (p *natsPeer) start() (t *target, stop func(), err error) {
	if p.err != nil {
		return nil, nil, p.err
	}
	port, err := proc.FreePort()
	if err != nil {
		return nil, nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	config := filepath.Join(p.dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\njetstream {\n  store_dir: %q\n  max_mem: 1G\n  max_file: 200G\n}\n", addr, filepath.Join(p.dir, "data"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, nil, err
	}
	c, err := proc.Run(exec.Command(p.binary, "-c", config))
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		c.Stop(10 * time.Second)
		_ = os.RemoveAll(filepath.Join(p.dir, "data"))
	}
	if err := c.Listens("tcp", addr, 20*time.Second); err != nil {
		stop()
		return nil, nil, fmt.Errorf("nats-server: %w", err)
	}
	return &target{name: "NATS JetStream", broker: addr, pid: c.Pid(), speaks: jetStream{}}, stop, nil
}

// Budgets beside NATS JetStream.
const (
	natsInFlight = "CPU a message beside NATS JetStream, theirs / ours: 256 in flight, 1 KiB"
	natsWaiting  = "CPU a message beside NATS JetStream, theirs / ours: 64 waiting senders, 1 KiB"
	natsPush     = "p99 from send to subscriber at 1,000 messages/s, 1 KiB, pushed, against NATS JetStream"
	natsPull     = "p99 from send to subscriber at 1,000 messages/s, 1 KiB, by held pull, against NATS JetStream"
)

// natsBudgets measures ours and NATS JetStream with file storage in turn.
func (b *bench) natsBudgets() error {
	theirs, stop, err := (*target)(nil), func() {}, errNoPeer("nats")
	if b.nats != nil {
		theirs, stop, err = b.nats.start()
	}
	if err != nil {
		for _, name := range []string{natsInFlight, natsWaiting, natsPush, natsPull} {
			b.table.unmeasured(name, err.Error())
		}
		return nil
	}
	defer stop()
	s, ours, err := b.startServer("beside-nats")
	if err != nil {
		return err
	}
	defer discard(s)
	for _, c := range []struct {
		name string
		want float64
		run  func(senders []sender, topic string) *load
	}{
		{natsInFlight, 1.7, func(s []sender, topic string) *load { return pipelined(s, []string{topic}, queues, 256, 1024, 0) }},
		{natsWaiting, 1.8, func(s []sender, topic string) *load { return waiting(s, topic, queues, 64, 1024) }},
	} {
		sides := make([]side, 2)
		for i, t := range []*target{ours, theirs} {
			topic, err := t.newTopic(queues)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			sides[i] = side{t.name, t, running(t, func(s []sender) *load { return c.run(s, topic) })}
		}
		got, err := b.alternate(sides)
		if err != nil {
			return err
		}
		ratio := got[1].cpu / got[0].cpu
		b.table.add(row{c.name, quantity(got[0].cpu, "us"), quantity(got[1].cpu, "us"), fmt.Sprintf("%.2f (>= %.2f)", ratio, c.want), verdict(ratio >= c.want)})
	}
	return b.natsLatency(s.Addr["notify"], ours, theirs)
}

// natsLatency compares the way from the send to the subscriber: theirs pushes, ours does that and answers pulls that it holds.
func (b *bench) natsLatency(notify string, ours, theirs *target) error {
	const rate, most = 1000, 1.2
	var all [3]*live
	for i, c := range []struct {
		addr string
		t    *target
		sub  subscriber
	}{{theirs.broker, theirs, natsClient}, {notify, ours, bareClient}, {ours.broker, ours, pullClient}} {
		l, err := b.live(c.addr, c.t, c.sub)
		if err != nil {
			return err
		}
		defer l.close()
		if _, _, err := l.paced(rate, b.warm); err != nil {
			return err
		}
		all[i] = l
	}
	var p99 [3][]float64
	loud := 0
	for r := range b.rounds() {
		for i := range all {
			if r%2 == 1 {
				i = len(all) - 1 - i
			}
			others := b.foreign(ours.pid, theirs.pid)
			_, v, err := all[i].paced(rate, b.window)
			if err != nil {
				return err
			}
			if others() > 0.3 {
				loud++
			}
			p99[i] = append(p99[i], v.Seconds()*1e3)
		}
	}
	fmt.Printf("p99 in ms: NATS %.3f, pushed %.3f, pulled %.3f (%d windows with more than 0.3 cores of others)\n", p99[0], p99[1], p99[2], loud)
	b.table.atMost(natsPush, median(p99[1]), median(p99[0]), most, "ms")
	b.table.atMost(natsPull, median(p99[2]), median(p99[0]), most, "ms")
	return nil
}
