package broker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

func halfProps(kv ...string) string {
	return props(append([]string{"TRAN_MSG", "true", "PGROUP", "PG"}, kv...)...)
}

// half is a half message that was answered.
type half struct{ address, offset string }

func (c *client) half(body string, kv ...string) half {
	c.Helper()
	r := c.sent(message{topic: "T", body: body, props: halfProps(kv...), extra: []string{"sysFlag", "4"}})
	_, at, err := record.ParseOffsetID(r.Get("msgId"))
	if err != nil || r.Get("recallHandle") != "" || r.Get("transactionId") == "" {
		c.Fatalf("%v", r)
	}
	return half{strconv.FormatInt(at, 10), r.Get("queueOffset")}
}

// at is the address as a number.
func (h half) at() int64 {
	n, err := strconv.ParseInt(h.address, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// end is the fields of an END_TRANSACTION; later pairs replace earlier ones, and one without a value takes its field away.
func (h half) end(kind int, kv ...string) []string {
	fields := []string{"producerGroup", "PG", "tranStateTableOffset", h.offset, "commitLogOffset", h.address, "commitOrRollback", strconv.Itoa(kind),
		"fromTransactionCheck", "false", "msgId", "U", "transactionId", "U", "topic", "T"}
	for i := 0; i < len(kv); i += 2 {
		at := slices.Index(fields, kv[i])
		fields[at+1] = kv[i+1]
		if kv[i+1] == "" {
			fields = slices.Delete(fields, at, at+2)
		}
	}
	return fields
}

func (c *client) endHalf(code int32, h half, kind int, kv ...string) {
	c.Helper()
	if r := c.call(remoting.ReqEndTransaction, nil, h.end(kind, kv...)...); r.Code != code {
		c.Errorf("end %d of the half at %s: %v, want %d", kind, h.address, r, code)
	}
}

func (e *env) bodies(topic string, queue int) (out []string) {
	c := e.dial()
	for {
		r := c.pull(pullReq{group: "G", topic: topic, queue: queue, offset: int64(len(out)), sub: "*"})
		if r.Code != 0 {
			return out
		}
		for _, m := range records(e, r.body) {
			out = append(out, string(m.Body()))
		}
	}
}

// A half is in no queue until it is committed, an outcome is final, and a second end of the same kind changes nothing; fault TRX-01.
func TestTransactions(t *testing.T) {
	e := start(t)
	e.topic("T", 4)
	c := e.dial()
	c.sent(message{topic: "T", queue: 0, body: "plain"})
	r := c.sent(message{topic: "T", queue: 2, body: "committed", props: halfProps("TAGS", "A", "UNIQ_KEY", "UC"), extra: []string{"sysFlag", "4", "flag", "7"}})
	_, at, _ := record.ParseOffsetID(r.Get("msgId"))
	committed := half{strconv.FormatInt(at, 10), r.Get("queueOffset")}
	if r.Get("transactionId") != "UC" || r.Get("queueId") != "2" || r.Get("queueOffset") != "0" {
		t.Errorf("%v", r)
	}
	rolledBack := c.half("rolled back")
	undecided := c.half("undecided")
	byProperty := c.sent(message{topic: "T", body: "by its property alone", props: halfProps("TRAN_MSG", "TRUE")}) // sysFlag 0
	if got := e.bodies("T", 2); len(got) != 0 || !slices.Equal(e.bodies("T", 0), []string{"plain"}) {
		t.Fatalf("halves are visible: %q", got)
	}
	for range 2 {
		c.endHalf(0, committed, endCommit)
		c.endHalf(0, rolledBack, endRollback)
	}
	c.endHalf(604, committed, endRollback)
	c.endHalf(604, rolledBack, endCommit)
	// From a check the topic is that of the half.
	c.endHalf(0, committed, endCommit, "fromTransactionCheck", "true", "topic", "RMQ_SYS_TRANS_HALF_TOPIC")
	m := records(t, c.pull(pullReq{group: "G", topic: "T", queue: 2, sub: "*"}).body)
	if len(m) != 1 || string(m[0].Body()) != "committed" {
		t.Fatalf("%d messages in queue 2", len(m))
	}
	want := props("TRAN_MSG", "true", "PGROUP", "PG", "TAGS", "A", "UNIQ_KEY", "UC", "CLUSTER", "DefaultCluster", "MSG_REGION", "DefaultRegion", "TRACE_ON", "true", "REAL_TOPIC", "T", "REAL_QID", "2")
	if v := m[0]; v.SysFlag() != 8 || v.PreparedOffset() != at || v.Flag() != 7 || v.QueueOffset() != 0 || string(v.Properties()) != want {
		t.Errorf("sysFlag %#x, prepared at %d, flag %d, offset %d, %q", v.SysFlag(), v.PreparedOffset(), v.Flag(), v.QueueOffset(), v.Properties())
	}
	_, at, _ = record.ParseOffsetID(byProperty.Get("msgId"))
	if h := e.store.Half(at); h.Outcome != state.Undecided {
		t.Errorf("%+v", h)
	}
	// Not known yet is not answered, also when an answer is wanted; others behind it are.
	c.put(remoting.ReqEndTransaction, 0, nil, undecided.end(endUnknown)...)
	c.put(remoting.ReqEndTransaction, remoting.FlagOneway, nil, undecided.end(endCommit)...)
	c.ok(remoting.ReqGetMaxOffset, nil, "topic", "T", "queueId", "0")
	if got := e.bodies("T", 0); !slices.Equal(got, []string{"plain", "undecided"}) {
		t.Errorf("queue 0 has %q", got)
	}
	if s := e.b.Stats(); s.Commits != 4 || s.Rollbacks != 2 || s.EndsRefused != 2 {
		t.Errorf("%+v", s)
	}
}

// An end that names no half, or another one, is refused as 5.3.3 does it, and nothing is delivered; fault TRX-08.
func TestEndTransactionRefusals(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	plain := c.sent(message{topic: "T", body: "plain"})
	_, plainAt, _ := record.ParseOffsetID(plain.Get("msgId"))
	a, b := c.half("a"), c.half("b")
	for _, tc := range []struct {
		name   string
		give   []string
		code   int32
		remark string
	}{
		{"another group", a.end(8, "producerGroup", "Wrong"), 1, "The producer group wrong"},
		{"the offset of another half", a.end(8, "tranStateTableOffset", b.offset), 1, "The transaction state table offset wrong"},
		{"an offset of none", a.end(8, "tranStateTableOffset", "-1"), 1, "The transaction state table offset wrong"},
		{"the middle of a record", a.end(8, "commitLogOffset", strconv.FormatInt(a.at()+10, 10)), 1, "Find prepared transaction message failed"},
		{"an ordinary message", a.end(8, "commitLogOffset", strconv.FormatInt(plainAt, 10)), 1, "Find prepared transaction message failed"},
		{"behind the log", a.end(8, "commitLogOffset", "99999999"), 1, "Find prepared transaction message failed"},
		{"below the log", a.end(12, "commitLogOffset", "-1"), 1, "Find prepared transaction message failed"},
		{"the largest number", a.end(12, "commitLogOffset", "9223372036854775807"), 1, "Find prepared transaction message failed"},
		{"another outcome", a.end(5), 29, "commitOrRollback is 5, want 0, 8 or 12"},
		{"no group", a.end(8, "producerGroup", ""), 29, "field producerGroup is missing"},
		{"no position", a.end(8, "commitLogOffset", ""), 29, "field commitLogOffset is missing"},
		{"no offset", a.end(8, "tranStateTableOffset", ""), 29, "field tranStateTableOffset is missing"},
		{"no outcome", a.end(8, "commitOrRollback", ""), 29, "field commitOrRollback is missing"},
		{"no ids", a.end(8, "msgId", "", "transactionId", "", "topic", "", "fromTransactionCheck", ""), 0, ""},
	} {
		if r := c.call(remoting.ReqEndTransaction, nil, tc.give...); r.Code != tc.code || r.Remark != tc.remark {
			t.Errorf("%s: %v, want %d %q", tc.name, r, tc.code, tc.remark)
		}
	}
	if got := e.bodies("T", 0); !slices.Equal(got, []string{"plain", "a"}) {
		t.Errorf("queue 0 has %q", got)
	}
	if h := e.store.Half(b.at()); h.Outcome != state.Undecided {
		t.Errorf("b is %+v", h)
	}
}

func TestHalvesThatNobodyCouldEnd(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.RejectTransactions = true })
	e.topic("T", 1)
	c := e.dial()
	if r := c.send(message{topic: "T", body: "x", props: halfProps()}); r.Code != 16 {
		t.Errorf("with transactions off: %v", r)
	}
	e = start(t, shortLevels)
	e.topic("T", 1)
	c = e.dial()
	for _, p := range []string{props("TRAN_MSG", "true"), props("TRAN_MSG", "true", "PGROUP", string(make([]byte, 256))), halfProps("DELAY", "soon"), halfProps("TIMER_DELAY_SEC", "99999999")} {
		if r := c.send(message{topic: "T", body: "x", props: p}); r.Code != 13 {
			t.Errorf("%.60q: %v", p, r)
		}
	}
	if n := e.store.StateStats().Halves; n != 0 {
		t.Errorf("%d halves", n)
	}
	// What a consumer before 4.6.1 sends back with the properties of a half is delayed like any other.
	c.sent(message{topic: "T", body: "back", props: halfProps("DELAY", "1"), extra: []string{"reconsumeTimes", "1"}})
	if got := c.nextOf(0); string(got[0].Body()) != "back" {
		t.Errorf("%q", got[0].Body())
	}
}

// The delay of a half counts from its commit.
func TestDelayedHalves(t *testing.T) {
	e := start(t, shortLevels)
	e.topic("T", 1)
	c := e.dial()
	level, timed, far := c.half("level", "DELAY", "2"), c.half("timed", "TIMER_DELAY_MS", "100"), c.half("far", "TIMER_DELAY_SEC", "1000", "DELAY", "0")
	begun := time.Now().Truncate(time.Millisecond) // as the store counts
	for _, h := range []half{level, timed, far} {
		c.endHalf(0, h, endCommit)
	}
	for i, least := range []time.Duration{40 * time.Millisecond, 100 * time.Millisecond} {
		if got := c.nextOf(int64(i)); string(got[0].Body()) != []string{"level", "timed"}[i] || time.Since(begun) < least || got[0].SysFlag() != 8 {
			t.Errorf("%q came after %s", got[0].Body(), time.Since(begun))
		}
	}
	if ds := e.delays(); len(ds) != 1 || ds[0].Due < begun.Add(1000*time.Second).UnixMilli() {
		t.Errorf("%+v", ds)
	}
	c.endHalf(0, far, endCommit)
	c.endHalf(604, far, endRollback)
}

// Halves and ends that come in one burst are stored and ended together, each with its own answer.
func TestTransactionsInBursts(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	const n = 100
	var sends []int32
	for i := range n {
		m := message{topic: "T", body: fmt.Sprint(i), props: halfProps()}
		sends = append(sends, c.put(m.code(), 0, []byte(m.body), m.fields()...))
	}
	c.flush()
	var halves []half
	for _, o := range sends {
		r := c.await(o)
		_, at, err := record.ParseOffsetID(r.Get("msgId"))
		if err != nil {
			t.Fatal(r)
		}
		halves = append(halves, half{strconv.FormatInt(at, 10), r.Get("queueOffset")})
	}
	operations := e.store.Stats().Log.Records
	var ends []int32
	for i, h := range halves {
		ends = append(ends, c.put(remoting.ReqEndTransaction, 0, nil, h.end([]int{endCommit, endRollback}[i%2])...))
	}
	c.flush()
	for _, o := range ends {
		if r := c.await(o); r.Code != 0 {
			t.Errorf("%v", r)
		}
	}
	if got := len(e.bodies("T", 0)); got != n/2 {
		t.Errorf("%d messages", got)
	}
	if wrote := e.store.Stats().Log.Records - operations; wrote > n/2 {
		t.Errorf("%d records for %d ends", wrote, n)
	}
}

// produce makes the connection a member of a producer group.
func (c *client) produce(id, group string) {
	c.Helper()
	body, err := json.Marshal(remoting.HeartbeatData{ClientID: id, ProducerDataSet: []remoting.ProducerData{{GroupName: group}}})
	if err != nil {
		c.Fatal(err)
	}
	c.ok(remoting.ReqHeartBeat, body)
}

// check waits for the next check.
func (c *client) check() (*reply, record.View) {
	c.Helper()
	for {
		var r *reply
		if len(c.notes) > 0 {
			r, c.notes = c.notes[0], c.notes[1:]
		} else if r = c.read(30 * time.Second); r == nil {
			c.Fatal("no check came")
		}
		if r.Code == remoting.ReqCheckTransactionState {
			return r, records(c, r.body)[0]
		}
	}
}

func fastChecks(c *Config, _ *store.Options) {
	c.checkTick, c.CheckInterval, c.MaxChecks = 5*time.Millisecond, 20*time.Millisecond, 3
}

// A half that nobody ends is asked about as 5.3.3 asks, at the limit it is moved aside, where it can be read and still be ended; one that was ended is not
// asked about any more; fault TRX-03.
func TestCheckBack(t *testing.T) {
	e := start(t, fastChecks)
	e.topic("T", 1)
	c := e.dial()
	c.produce("p@1", "PG")
	decided := c.half("decided", "CHECK_IMMUNITY_TIME_IN_SECONDS", "0", "UNIQ_KEY", "UD", "KEYS", "k")
	r, v := c.check()
	if r.Flag != remoting.FlagOneway || r.Get("topic") != "RMQ_SYS_TRANS_HALF_TOPIC" || r.Get("bname") != "broker-a" || r.Get("msgId") != "UD" || r.Get("transactionId") != "UD" || r.Get("commitLogOffset") != decided.address ||
		r.Get("tranStateTableOffset") != decided.offset || r.Get("offsetMsgId") != record.OffsetID(e.b.cfg.StoreHost, num(t, r, "commitLogOffset")) {
		t.Errorf("%v", r)
	}
	if string(v.Topic()) != "T" || v.QueueID() != 0 || string(v.Body()) != "decided" || prop(v, "PGROUP") != "PG" || prop(v, "TRANSACTION_CHECK_TIMES") != "1" || prop(v, "KEYS") != "k" || v.SysFlag() != 0 {
		t.Errorf("asked about %s/%d %q %q", v.Topic(), v.QueueID(), v.Body(), v.Properties())
	}
	c.endHalf(0, half{r.Get("commitLogOffset"), r.Get("tranStateTableOffset")}, endCommit, "fromTransactionCheck", "true", "topic", r.Get("topic"))
	before := e.b.Stats().Checks
	ended := map[string]bool{r.Get("commitLogOffset"): true}
	open := c.half("open", "CHECK_IMMUNITY_TIME_IN_SECONDS", "0", "UNIQ_KEY", "UO")
	for n := 1; n <= 3; {
		r, v := c.check()
		if r.Get("commitLogOffset") == decided.address && before > 0 {
			before-- // it was on its way when the transaction ended
			continue
		}
		if ended[r.Get("commitLogOffset")] || prop(v, "TRANSACTION_CHECK_TIMES") != strconv.Itoa(n) || r.Get("commitLogOffset") != open.address {
			t.Errorf("check %d: %v %q", n, r, v.Properties())
		}
		n++
	}
	aside := c.aside("open")
	if prop(aside, "TRANSACTION_CHECK_TIMES") != "3" || prop(aside, "REAL_TOPIC") != "T" || prop(aside, "UNIQ_KEY") != "UO" {
		t.Errorf("moved aside with %q", aside.Properties())
	}
	if s := e.b.Stats(); s.Aside != 1 || s.Commits != 1 {
		t.Errorf("%+v", s)
	}
	c.endHalf(0, open, endCommit)
	if got := e.bodies("T", 0); !slices.Equal(got, []string{"decided", "open"}) {
		t.Errorf("%q", got)
	}
}

// aside waits for a message among those that were moved aside.
func (c *client) aside(body string) record.View {
	c.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // the topic comes with the first one
		if r := c.pull(pullReq{group: "G", topic: store.AsideTopic, sub: "*"}); r.Code == 0 {
			for _, v := range records(c, r.body) {
				if string(v.Body()) == body {
					return v
				}
			}
		}
		if time.Now().After(end) {
			c.Fatalf("%q is not moved aside", body)
		}
	}
}

// The members of the group are asked in turn, others never, and one that joins later is asked; faults TRX-12 and TRX-14.
func TestCheckBackGoesToLivingMembers(t *testing.T) {
	e := start(t, fastChecks, func(c *Config, _ *store.Options) { c.MaxChecks = 1000 })
	e.topic("T", 1)
	sender, other, a, b := e.dial(), e.dial(), e.dial(), e.dial()
	other.produce("o@1", "Other")
	h := sender.half("x", "CHECK_IMMUNITY_TIME_IN_SECONDS", "0")
	at := h.at()
	if err := e.store.WaitApplied(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	first := e.store.Half(at).Due
	for end := time.Now().Add(30 * time.Second); first == e.store.Half(at).Due; time.Sleep(time.Millisecond) { // until it was looked at, and nobody was there
		if time.Now().After(end) {
			t.Fatal("the half is not looked at")
		}
	}
	a.produce("a@1", "PG")
	a.check()
	b.produce("b@1", "PG")
	for range 3 {
		b.check()
		a.check()
	}
	a.conn.Close()
	for range 3 {
		b.check()
	}
	b.endHalf(0, h, endRollback, "fromTransactionCheck", "true")
	if r := other.read(time.Millisecond); r != nil {
		t.Errorf("another group was asked: %v", r)
	}
}
