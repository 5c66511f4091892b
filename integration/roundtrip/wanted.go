package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

const (
	group  = "roundtrip"
	topic  = "Roundtrip"
	queues = 4
	each   = 100 // messages of a queue that the first broker gets
	halves = 2   // transactions that nobody decides

	later = 2 * time.Hour    // nothing of this falls due on the way
	soon  = 20 * time.Second // and this on the way or at its end, after fill

	offset      = 7 // committed for queue 0
	codeSetBack = 36
	codeEndTx   = 37
	codeCommit  = 15
	codePop     = 200050
	codeAck     = 200051
)

// place is a queue.
type place struct {
	topic string
	queue int
}

// wanted is what a directory has to have.
type wanted struct {
	version string
	plain   [queues][]string   // bodies of the topic by queue and offset
	fixed   map[place][]string // bodies of other queues, in any order, that are there when fill returns
	soon    map[string]place   // bodies of what comes, and where
	late    int                // messages that wait longer than all of this takes
}

func newWanted(version string) *wanted {
	return &wanted{version: version, fixed: map[place][]string{}, soon: map[string]place{}}
}

// timers is whether the broker delivers at any time, and serves pop.
func (w *wanted) timers() bool { return strings.HasPrefix(w.version, "5.") }

// client is one connection of a group.
type client struct {
	*raw.Sender
	n uint64
}

func dial(addr string) (*client, error) {
	s, err := raw.NewSender(addr, group)
	return &client{Sender: s}, err
}

// ask sends a request and wants the answer 0.
func (c *client) ask(what string, code int, body []byte, fields ...string) (raw.Answer, error) {
	a, err := c.C.Do(code, body, fields...)
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w", what, err)
	}
	return a, nil
}

// put sends one message to queue 0 and returns its id.
func (c *client) put(topic, body string, sysFlag int, props ...string) (id string, offset int64, err error) {
	c.n++
	p := "UNIQ_KEY\x01" + raw.ID(c.n) + "\x02"
	for i := 0; i < len(props); i += 2 {
		p += props[i] + "\x01" + props[i+1] + "\x02"
	}
	a, err := c.ask("send to "+topic, raw.CodeSendV2, []byte(body), "a", group, "b", topic, "c", "TBW102", "d", "1", "e", "0", "f", strconv.Itoa(sysFlag), "g", fmt.Sprint(time.Now().UnixMilli()),
		"h", "0", "i", p, "j", "0", "k", "false", "m", "false")
	if err != nil {
		return "", 0, err
	}
	return raw.Str(a.Header, "msgId"), raw.Int(a.Header, "queueOffset"), nil
}

// position is the place in the log that an offset id names.
func position(id string) string {
	n, _ := strconv.ParseInt(id[max(len(id)-16, 0):], 16, 64) // of a broker's answer
	return strconv.FormatInt(n, 10)
}

// fill gives a broker some of everything.
func (w *wanted) fill(addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.C.Close()
	for name, n := range map[string]int{topic: queues, "Waiting": 1, "Tx": 1, "Light": 1, "Popped": 1} {
		if err := raw.CreateTopic(c.C, name, n); err != nil {
			return fmt.Errorf("create topic: %w", err)
		}
	}
	steps := []func(*client) error{w.light, w.transactions, w.sentBack, w.delays}
	if w.timers() {
		steps = append(steps, w.pops)
	}
	for _, step := range steps {
		if err := step(c); err != nil {
			return err
		}
	}
	if err := w.send(addr, each); err != nil {
		return err
	}
	_, err = c.ask("commit offset", codeCommit, nil, "consumerGroup", group, "topic", topic, "queueId", "0", "commitOffset", strconv.Itoa(offset))
	return err
}

func (w *wanted) light(c *client) error {
	for i, names := range []string{"%LMQ%a,%LMQ%b", "%LMQ%a", "%LMQ%b,%LMQ%a"} {
		body := fmt.Sprint("light ", i)
		if _, _, err := c.put("Light", body, 0, "INNER_MULTI_DISPATCH", names); err != nil {
			return err
		}
		for name := range strings.SplitSeq(names, ",") {
			w.fixed[place{name, 0}] = append(w.fixed[place{name, 0}], body)
		}
		w.fixed[place{"Light", 0}] = append(w.fixed[place{"Light", 0}], body)
	}
	return nil
}

// transactions are one of each end, and those that nobody decides; arrive commits them.
func (w *wanted) transactions(c *client) error {
	for i := range halves + 2 {
		body := fmt.Sprint("half ", i)
		const prepared, commit, rollback = 4, 8, 12
		id, at, err := c.put("Tx", body, prepared, "TRAN_MSG", "true", "PGROUP", group)
		if err != nil {
			return err
		}
		switch end := commit; i {
		case 1:
			end = rollback
			fallthrough
		case 0:
			if err := c.end(at, position(id), end, body); err != nil {
				return err
			}
		}
	}
	w.fixed[place{"Tx", 0}] = []string{"half 0"}
	return nil
}

func (c *client) end(at int64, position string, how int, body string) error {
	_, err := c.ask("end of "+body, codeEndTx, nil, "producerGroup", group, "tranStateTableOffset", fmt.Sprint(at), "commitLogOffset", position, "commitOrRollback", strconv.Itoa(how),
		"fromTransactionCheck", "false", "msgId", "", "transactionId", "")
	return err
}

// sentBack is one that comes again at once, one that waits, and a dead letter.
func (w *wanted) sentBack(c *client) error {
	for level, to := range map[string]string{"1": "%RETRY%" + group, "18": "", "-1": "%DLQ%" + group} {
		body := "sent back with level " + level
		id, _, err := c.put("Waiting", body, 0)
		if err != nil {
			return err
		}
		w.fixed[place{"Waiting", 0}] = append(w.fixed[place{"Waiting", 0}], body)
		if _, err := c.ask(body, codeSetBack, nil, "offset", position(id), "group", group, "delayLevel", level, "originMsgId", id, "originTopic", "Waiting", "unitMode", "false", "maxReconsumeTimes", "16"); err != nil {
			return err
		}
		switch {
		case to == "":
			w.late++
		default:
			w.fixed[place{to, 0}] = append(w.fixed[place{to, 0}], body)
			if _, err := c.pull(place{to, 0}, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *wanted) delays(c *client) error {
	for i := range 5 {
		if _, _, err := c.put("Delayed", fmt.Sprint("delayed ", i), 0, "DELAY", "18"); err != nil {
			return err
		}
		w.late++
	}
	if !w.timers() {
		return nil
	}
	for i, after := range []time.Duration{later, soon} {
		body := fmt.Sprint("timer ", i)
		if _, _, err := c.put("Delayed", body, 0, "TIMER_DELIVER_MS", fmt.Sprint(time.Now().Add(after).UnixMilli())); err != nil {
			return err
		}
		if after == later {
			w.late++
		} else {
			w.soon[body] = place{"Delayed", 0}
		}
	}
	return nil
}

// pops gives messages to a consumer that acknowledges one of them and is gone then.
func (w *wanted) pops(c *client) error {
	for i := range 4 {
		body := fmt.Sprint("popped ", i)
		if _, _, err := c.put("Popped", body, 0); err != nil {
			return err
		}
		w.fixed[place{"Popped", 0}] = append(w.fixed[place{"Popped", 0}], body)
	}
	if _, err := c.pull(place{"Popped", 0}, 4); err != nil { // they are in the queue
		return err
	}
	pop := func(n int, invisible time.Duration) (handle string, err error) {
		a, err := c.ask("pop", codePop, nil, "consumerGroup", group, "topic", "Popped", "queueId", "0", "maxMsgNums", strconv.Itoa(n), "invisibleTime", fmt.Sprint(invisible.Milliseconds()),
			"pollTime", "0", "bornTime", fmt.Sprint(time.Now().UnixMilli()), "initMode", "0", "expType", "TAG", "exp", "*", "order", "false")
		if err != nil {
			return "", err
		}
		got := 0
		if err := raw.Messages(a.Body, func(raw.Message) { got++ }); err != nil || got != n {
			return "", fmt.Errorf("popped %d messages, %w", got, err)
		}
		return fmt.Sprint(raw.Int(a.Header, "popTime"), " ", raw.Int(a.Header, "invisibleTime"), " ", raw.Int(a.Header, "reviveQid"), " 0 broker-a 0"), nil
	}
	handle, err := pop(3, later)
	if err != nil {
		return err
	}
	if _, err := c.ask("acknowledge", codeAck, nil, "consumerGroup", group, "topic", "Popped", "queueId", "0", "extraInfo", "0 "+handle+" 1", "offset", "1"); err != nil {
		return err
	}
	w.late += 2
	w.soon["popped 3"] = place{"%RETRY%" + group + "_Popped", 0}
	_, err = pop(1, soon)
	return err
}

// send sends n plain messages to each queue and notes them.
func (w *wanted) send(addr string, n int) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.C.Close()
	type sent struct {
		raw.Sent
		body string
		err  error
	}
	done := make(chan sent, n*queues)
	for i := range n {
		for q := range queues {
			body := fmt.Sprintf("%d/%d of %s %s", q, i, addr, strings.Repeat(".", i*13))
			c.Go(topic, q, []byte(body), func(at raw.Sent, err error) { done <- sent{at, body, err} })
		}
	}
	for q := range w.plain {
		w.plain[q] = append(w.plain[q], make([]string, n)...)
	}
	for range n * queues {
		m := <-done
		if m.err != nil {
			return m.err
		}
		if q := w.plain[m.Queue]; m.Offset >= int64(len(q)) || q[m.Offset] != "" {
			return fmt.Errorf("%.60q was stored at %d of queue %d, where another message is", m.body, m.Offset, m.Queue)
		}
		w.plain[m.Queue][m.Offset] = m.body // a broker need not keep the order of what comes in at once
	}
	return nil
}

// compare pulls every queue and compares what comes with what was sent; with committed, also the offset of the group.
func (w *wanted) compare(addr string, committed bool) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.C.Close()
	for q, want := range w.plain {
		got, err := c.pull(place{topic, q}, len(want))
		if err != nil {
			return err
		}
		for i := range want {
			if got[i] != want[i] {
				return fmt.Errorf("queue %d has %.60q at %d, want %.60q", q, got[i], i, want[i])
			}
		}
	}
	for p, want := range w.fixed {
		got, err := c.pull(p, len(want))
		if err != nil {
			return err
		}
		for _, body := range want {
			if !slices.Contains(got, body) {
				return fmt.Errorf("%s has %q, but not %q", p.topic, got, body)
			}
		}
	}
	if committed {
		a, err := c.ask("committed offset", raw.CodeQueryOffset, nil, "consumerGroup", group, "topic", topic, "queueId", "0")
		if n := raw.Int(a.Header, "offset"); err != nil || n != offset {
			return fmt.Errorf("group has committed %d, want %d: %w", n, offset, err)
		}
	}
	return nil
}

// arrive waits for what is due soon, each once, and commits what nobody has decided.
func (w *wanted) arrive(addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.C.Close()
	for body, p := range w.soon {
		got, err := c.pull(p, 1)
		if err != nil {
			return fmt.Errorf("%q has not come: %w", body, err)
		}
		if len(got) != 1 || got[0] != body {
			return fmt.Errorf("%s has %q, want %q alone", p.topic, got, body)
		}
	}
	var open []raw.Message
	const half = "RMQ_SYS_TRANS_HALF_TOPIC"
	for next := int64(0); ; {
		from := next
		if next, err = raw.Pull(c.C, group, half, 0, from, 0, func(m raw.Message) {
			m.Body = slices.Clone(m.Body)
			open = append(open, m)
		}); err != nil || next <= from {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("undecided transactions: %w", err)
	}
	for i := range halves {
		body := fmt.Sprint("half ", 2+i)
		at := slices.IndexFunc(open, func(m raw.Message) bool { return string(m.Body) == body })
		if at < 0 {
			return fmt.Errorf("%q is not there to be decided", body)
		}
		if err := c.end(open[at].QueueOffset, fmt.Sprint(open[at].Address), 8, body); err != nil {
			return err
		}
	}
	got, err := c.pull(place{"Tx", 0}, 1+halves)
	if err == nil && len(got) != 1+halves {
		err = fmt.Errorf("topic Tx has %q", got)
	}
	return err
}

// pull reads a queue from its beginning until n messages or more have come. What has just started may still be looking at its log.
func (c *client) pull(p place, n int) (bodies []string, err error) {
	deadline := time.Now().Add(soon + time.Minute)
	for next := int64(0); len(bodies) < n; {
		from := next
		next, err = raw.Pull(c.C, group, p.topic, p.queue, from, 0, func(m raw.Message) { bodies = append(bodies, string(m.Body)) })
		var code *raw.CodeError
		if missing := errors.As(err, &code) && code.Code == 17; err != nil && !missing { // its topic may come with the message
			return bodies, fmt.Errorf("%s/%d: %w", p.topic, p.queue, err)
		}
		if next > from && err == nil {
			continue
		}
		if next = from; time.Now().After(deadline) {
			return bodies, fmt.Errorf("%s/%d ends at %d, want %d: %w", p.topic, p.queue, from, n, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	return bodies, nil
}
