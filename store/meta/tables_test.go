package meta

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// A retry policy is kept when it is the only thing that is not among a group's fields, and reading one does not change the
// default of others.
func TestRetryPolicyAloneIsKept(t *testing.T) {
	for _, policy := range []string{`{"type":"EXPONENTIAL"}`, `{"type":"X"}`} {
		g := DefaultGroup("")
		if err := json.Unmarshal([]byte(`{"groupName":"G","groupRetryPolicy":`+policy+`}`), &g); err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(g); err != nil || !strings.Contains(string(b), `"groupRetryPolicy":`+policy) {
			t.Errorf("%s became %s, %v", policy, b, err)
		}
		if b, _ := json.Marshal(DefaultGroup("H")); !strings.Contains(string(b), `"groupRetryPolicy":{"type":"CUSTOMIZED"}`) {
			t.Errorf("after reading %s the default is %s", policy, b)
		}
	}
}

func TestPutRefusesWhatIsOutOfRange(t *testing.T) {
	topic := func(change func(*Topic)) Topic {
		c := DefaultTopic("T")
		change(&c)
		return c
	}
	long := strings.Repeat("x", 300)
	topics := []struct {
		name  string
		give  Topic
		field string // of the *Invalid; empty when it is accepted
	}{
		{"plain name", DefaultTopic("T-_1%a|b"), ""},
		{"127 characters", DefaultTopic(long[:127]), ""},
		{"128 characters", DefaultTopic(long[:128]), "topic"},
		{"255 characters of a retry topic", DefaultTopic(RetryPrefix + long[:248]), ""},
		{"256 characters of a retry topic", DefaultTopic(RetryPrefix + long[:249]), "topic"},
		{"255 characters of a dead letter topic", DefaultTopic(DLQPrefix + long[:250]), ""},
		{"empty name", DefaultTopic(""), "topic"},
		{"blank", DefaultTopic("a b"), "topic"},
		{"dot", DefaultTopic("a.b"), "topic"},
		{"@", DefaultTopic("a@b"), "topic"},
		{"Chinese", DefaultTopic("主题"), "topic"},
		{"no read queue", topic(func(c *Topic) { c.ReadQueues = 0 }), "readQueueNums"},
		{"no write queue", topic(func(c *Topic) { c.WriteQueues = 0 }), "writeQueueNums"},
		{"most queues", topic(func(c *Topic) { c.ReadQueues, c.WriteQueues = MaxQueues, MaxQueues }), ""},
		{"too many read queues", topic(func(c *Topic) { c.ReadQueues = MaxQueues + 1 }), "readQueueNums"},
		{"too many write queues", topic(func(c *Topic) { c.WriteQueues = 1 << 30 }), "writeQueueNums"},
		{"negative perm", topic(func(c *Topic) { c.Perm = -1 }), "perm"},
		{"perm 8", topic(func(c *Topic) { c.Perm = 8 }), "perm"},
		{"perm 0", topic(func(c *Topic) { c.Perm = 0 }), ""},
		{"filter type", topic(func(c *Topic) { c.FilterType = "SQL" }), "topicFilterType"},
		{"durability", topic(func(c *Topic) { c.Attributes = map[string]string{DurabilityAttribute: "sync"} }), ""},
		{"unknown durability", topic(func(c *Topic) { c.Attributes = map[string]string{DurabilityAttribute: "disk"} }), DurabilityAttribute},
		{"replicated", topic(func(c *Topic) { c.Attributes = map[string]string{DurabilityAttribute: "replicated"} }), DurabilityAttribute},
		{"long attribute", topic(func(c *Topic) { c.Attributes = map[string]string{"k": strings.Repeat("v", 2000)} }), "attributes"},
	}
	for _, tc := range topics {
		t.Run("topic, "+tc.name, func(t *testing.T) {
			x := open(t, vfs.NewMem())
			checkInvalid(t, x.topics.Put(tc.give), tc.field)
			if stored := x.topics.Get(tc.give.Name) != nil; stored != (tc.field == "") {
				t.Errorf("stored: %v", stored)
			}
		})
	}
	group := func(change func(*Group)) Group {
		g := DefaultGroup("G")
		change(&g)
		return g
	}
	groups := []struct {
		name  string
		give  Group
		field string
	}{
		{"plain", DefaultGroup("GID_%a|b-1"), ""},
		{"255 characters", DefaultGroup(long[:255]), ""},
		{"256 characters", DefaultGroup(long[:256]), "group"},
		{"empty", DefaultGroup(""), "group"},
		{"@", DefaultGroup("a@b"), "group"},
		{"no limit of retries", group(func(g *Group) { g.RetryMaxTimes = -1 }), ""},
		{"negative retries", group(func(g *Group) { g.RetryMaxTimes = -2 }), "retryMaxTimes"},
		{"no retry queue", group(func(g *Group) { g.RetryQueues = 0 }), ""},
		{"too many retry queues", group(func(g *Group) { g.RetryQueues = MaxQueues + 1 }), "retryQueueNums"},
		{"negative broker", group(func(g *Group) { g.BrokerID = -1 }), "brokerId"},
	}
	for _, tc := range groups {
		t.Run("group, "+tc.name, func(t *testing.T) {
			x := open(t, vfs.NewMem())
			checkInvalid(t, x.groups.Put(tc.give), tc.field)
			if stored := x.groups.Get(tc.give.Name) != nil; stored != (tc.field == "") {
				t.Errorf("stored: %v", stored)
			}
		})
	}
}

func checkInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var e *Invalid
	switch {
	case field == "":
		if err != nil {
			t.Errorf("refused: %v", err)
		}
	case !errors.As(err, &e) || e.Field != field || e.Limit == "":
		t.Errorf("got %v, want an Invalid of field %s", err, field)
	case len(e.Value) > 64:
		t.Errorf("the error repeats %d bytes of the value", len(e.Value))
	}
}

func TestPutAllIsAllOrNothing(t *testing.T) {
	x := open(t, vfs.NewMem())
	bad := DefaultTopic("B")
	bad.Perm = 9
	if err := x.topics.PutAll([]Topic{DefaultTopic("A"), bad}); err == nil || x.topics.Len() != 0 {
		t.Fatalf("got %v and %d topics", err, x.topics.Len())
	}
	if err := x.topics.PutAll([]Topic{DefaultTopic("A"), DefaultTopic("B")}); err != nil {
		t.Fatal(err)
	}
	if _, v := x.topics.All(); x.topics.Len() != 2 || v.Counter != 1 {
		t.Errorf("%d topics in version %d, want 2 in 1", x.topics.Len(), v.Counter)
	}
}

// Changes of one topic at once all count, which a Get and a Put would not give.
func TestConcurrentChangesAllCount(t *testing.T) {
	topics := open(t, vfs.NewMem()).topics
	if _, _, err := topics.Change("T", func(*Topic) error { return nil }); !errors.Is(err, ErrNoTopic) {
		t.Errorf("a topic that is not there: %v", err)
	}
	if err := topics.Put(DefaultTopic("T")); err != nil {
		t.Fatal(err)
	}
	told := 0
	topics.OnChange(func(*Topic) { told++ })
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			before, after, err := topics.Change("T", func(c *Topic) error {
				c.Attributes[fmt.Sprint("k", i)], c.WriteQueues = "v", c.WriteQueues+1
				return nil
			})
			if err != nil || after.WriteQueues != before.WriteQueues+1 {
				t.Errorf("%+v, %+v, %v", before, after, err)
			}
		})
	}
	wg.Wait()
	if c := topics.Get("T"); c.WriteQueues != 36 || len(c.Attributes) != 20 || told != 20 {
		t.Errorf("%+v, told %d times", c, told)
	}
	no := errors.New("no")
	if _, after, err := topics.Change("T", func(c *Topic) error { c.Perm = 0; return no }); !errors.Is(err, no) || after != nil || topics.Get("T").Perm != 6 {
		t.Errorf("refused by its caller: %v, %+v", err, topics.Get("T"))
	}
	var bad *Invalid
	if _, _, err := topics.Change("T", func(c *Topic) error { c.WriteQueues = 0; return nil }); !errors.As(err, &bad) || topics.Get("T").WriteQueues != 36 {
		t.Errorf("out of range: %v", err)
	}
	if _, _, err := topics.Change("T", func(*Topic) error { return nil }); err != nil || told != 20 {
		t.Errorf("no change: %v, told %d times", err, told)
	}
}

func TestValuesAreNotShared(t *testing.T) {
	x := open(t, vfs.NewMem())
	c := DefaultTopic("T")
	c.Attributes = map[string]string{DurabilityAttribute: "sync"}
	if err := x.topics.Put(c); err != nil {
		t.Fatal(err)
	}
	c.Attributes[DurabilityAttribute] = "memory"
	if got := x.topics.Get("T").Durability(Async); got != Sync {
		t.Errorf("durability is %v after the caller changed its map", got)
	}
	if got := (&Topic{}).Durability(Async); got != Async {
		t.Errorf("durability without an attribute is %v, want the default", got)
	}
}

func TestGetDoesNotAllocate(t *testing.T) {
	x := open(t, vfs.NewMem())
	if err := x.topics.Put(DefaultTopic("Topic")); err != nil {
		t.Fatal(err)
	}
	x.offsets.Commit("G", "Topic", 3, 1)
	name, offset := []byte("Topic"), int64(0)
	if n := testing.AllocsPerRun(100, func() {
		offset++
		x.offsets.Commit("G", "Topic", 3, offset)
		got, _ := x.offsets.Get("G", "Topic", 3)
		if x.topics.GetBytes(name) == nil || x.topics.Get("Topic") == nil || got != offset {
			t.Fatal("not there")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOnChangeTellsInOrderAndMayPut(t *testing.T) {
	x := open(t, vfs.NewMem())
	var told []string
	x.topics.OnChange(func(c *Topic) {
		told = append(told, fmt.Sprintf("%s:%d", c.Name, c.Perm))
		if x.topics.Get(c.Name).Perm != c.Perm {
			t.Errorf("told of %s before it is there", c.Name)
		}
		if c.Name == "A" && c.Perm == 6 {
			if err := x.topics.Put(DefaultTopic("B")); err != nil {
				t.Error(err)
			}
		}
	})
	a := DefaultTopic("A")
	for _, perm := range []int32{6, 6, 4} {
		a.Perm = perm
		if err := x.topics.Put(a); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"A:6", "B:6", "A:4"}, told); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
}

// TestConcurrentPutsShareWrites lets the first write wait until all the others have come.
func TestConcurrentPutsShareWrites(t *testing.T) {
	const others = 50
	var x *tables
	first, writes := make(chan struct{}), 0
	var once sync.Once
	var arrived sync.WaitGroup
	arrived.Add(others)
	x = open(t, vfs.Intercept(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == "create" && strings.HasSuffix(op.Name, TopicTable+".tmp") {
			writes++
			once.Do(func() {
				close(first)
				arrived.Wait()
			})
		}
		return nil
	}))
	var wg sync.WaitGroup
	put := func(name string) {
		if err := x.topics.Put(DefaultTopic(name)); err != nil {
			t.Error(err)
		}
		if x.topics.Get(name) == nil {
			t.Errorf("%s is not there after Put", name)
		}
	}
	wg.Go(func() { put("first") })
	<-first
	for i := range others {
		wg.Go(func() {
			arrived.Done()
			put(fmt.Sprintf("T%d", i))
		})
	}
	wg.Wait()
	// A goroutine may be late for the second write after it has said that it arrived; one write for each would be 51.
	if x.topics.Len() != others+1 || writes > others/2 {
		t.Errorf("%d topics with %d writes", x.topics.Len(), writes)
	}
}

func TestJSONKeepsUnknownFieldsAndDefaults(t *testing.T) {
	g := DefaultGroup("")
	if err := json.Unmarshal([]byte(`{"groupName":"G","retryMaxTimes":3,"groupRetryPolicy":{"type":"EXPONENTIAL"},"newer":1}`), &g); err != nil {
		t.Fatal(err)
	}
	if g.Name != "G" || g.RetryMaxTimes != 3 || !g.ConsumeEnable || g.ConsumeTimeoutMinutes != 15 {
		t.Errorf("decoded %+v", g)
	}
	b, err := json.Marshal(&g)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,` +
		`"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":{"type":"EXPONENTIAL"},"groupSysFlag":0,` +
		`"newer":1,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}`
	if string(b) != want {
		t.Errorf("encoded\n%s, want\n%s", b, want)
	}
}

// Requests are read from buffers that the next ones overwrite.
func TestAChangeKeepsNothingOfTheBufferOfItsName(t *testing.T) {
	fsys := vfs.NewMem()
	topics := open(t, fsys).topics
	for _, name := range []string{"a", "orders", "z"} {
		if err := topics.Put(DefaultTopic(name)); err != nil {
			t.Fatal(err)
		}
	}
	buf := []byte("orders")
	if _, _, err := topics.Change(unsafe.String(&buf[0], len(buf)), func(c *Topic) error { c.Perm = 4; return nil }); err != nil {
		t.Fatal(err)
	}
	copy(buf, "others")
	if err := topics.Put(DefaultTopic("more")); err != nil {
		t.Fatal(err)
	}
	for _, ts := range []*Topics{topics, open(t, fsys).topics} {
		if c := ts.Get("orders"); c == nil || c.Perm != 4 || c.Name != "orders" || ts.Get("others") != nil || ts.Len() != 4 {
			t.Errorf("%d topics, of which orders is %+v", ts.Len(), c)
		}
	}
}

func TestDecodingDoesNotTouchSharedAttributes(t *testing.T) {
	c := DefaultTopic("T")
	c.Attributes = map[string]string{"a": "1"}
	d := c
	if err := json.Unmarshal([]byte(`{"attributes":{"b":"2"}}`), &d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1"}, c.Attributes) + cmp.Diff(map[string]string{"b": "2"}, d.Attributes); diff != "" {
		t.Error(diff)
	}
}

func TestOffsets(t *testing.T) {
	fsys := vfs.NewMem()
	x := open(t, fsys)
	o := x.offsets
	o.Commit("G", "T", 2, 10)
	o.Commit("G", "T", 2, 4) // backwards too
	o.Commit("G", "T", 0, 0)
	o.Commit("G", "U", 1, 7)
	o.Commit("H", "T", 0, 9)
	o.Commit("G", "T", -1, 1)
	o.Commit("G", "T", MaxQueues, 1)
	o.Commit("G", "T", 5, -1)
	want := []Offset{{"G", "T", 0, 0}, {"G", "T", 2, 4}, {"H", "T", 0, 9}, {"G", "U", 1, 7}}
	if d := cmp.Diff(want, o.All()); d != "" {
		t.Errorf("all (-want +got):\n%s", d)
	}
	if _, ok := o.Get("G", "T", 1); ok {
		t.Error("queue 1 has an offset")
	}
	lowered := o.Lower(func(topic string, queue int32) int64 {
		if topic == "T" {
			return 5
		}
		return 0
	})
	if d := cmp.Diff([]Offset{{"H", "T", 0, 9}, {"G", "U", 1, 7}}, lowered); d != "" {
		t.Errorf("lowered (-want +got):\n%s", d)
	}
	o.Forget("G", "T")
	want = []Offset{{"H", "T", 0, 5}, {"G", "U", 1, 0}}
	if d := cmp.Diff(want, o.All()); d != "" {
		t.Errorf("at last (-want +got):\n%s", d)
	}
	if err := o.Persist(); err != nil {
		t.Fatal(err)
	}
	file := read(t, fsys, OffsetTable)
	if wantFile := "{\n\"dataVersion\":{\"counter\":1,\"stateVersion\":0,\"timestamp\":1800000000000},\n\"offsetTable\":{\n\"T@H\":{\"0\":5},\n\"U@G\":{\"1\":0}\n}\n}\n"; file != wantFile {
		t.Errorf("file is\n%s, want\n%s", file, wantFile)
	}
	if err := o.Persist(); err != nil {
		t.Fatal(err)
	}
	o.Commit("H", "T", 0, 5)
	if err := o.Persist(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, fsys, OffsetTable); got != file {
		t.Error("nothing has changed, but the file has")
	}
	if d := cmp.Diff(want, open(t, fsys).offsets.All()); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
}

func FuzzQuoteKeys(f *testing.F) {
	for _, s := range []string{"", "{", `{0:1}`, `{"a":{0:12,1:7 ,-3 : {2:[1,2,{4:5}]}}}`, `{"x":"{0:1}"}`, `{"q\"":1,2:"\\"}`, `[1,2,3]`, `{1`, `"`, `{"a":1}garbage`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := string(b)
		got := string(quoteKeys(b))
		if string(b) != before {
			t.Fatal("the input was changed")
		}
		if json.Valid(b) && got != before {
			t.Fatalf("%q is JSON already and became %q", before, got)
		}
		if again := string(quoteKeys([]byte(got))); again != got {
			t.Fatalf("%q became %q and then %q", before, got, again)
		}
		if strings.ReplaceAll(got, `"`, "") != strings.ReplaceAll(before, `"`, "") {
			t.Fatalf("%q became %q: more than quotes has changed", before, got)
		}
	})
}

func TestQuoteKeys(t *testing.T) {
	for give, want := range map[string]string{
		`{0:12,1:7}`:                     `{"0":12,"1":7}`,
		"{\n\t0 : {-1:[1,2],\"3\":4}\n}": "{\n\t\"0\" : {\"-1\":[1,2],\"3\":4}\n}",
		`{"a":"{0:1}",2:"\"{3:4}"}`:      `{"a":"{0:1}","2":"\"{3:4}"}`,
		`[1,2]`:                          `[1,2]`,
	} {
		if got := string(quoteKeys([]byte(give))); got != want {
			t.Errorf("quoteKeys(%s) = %s, want %s", give, got, want)
		}
	}
}

// BenchmarkOpen is what a start spends on the tables.
func BenchmarkOpen(b *testing.B) {
	fsys := vfs.NewMem()
	x := open(b, fsys)
	cs := make([]Topic, 10000)
	for i := range cs {
		cs[i] = DefaultTopic(fmt.Sprintf("Topic-%05d", i))
	}
	if err := x.topics.PutAll(cs); err != nil {
		b.Fatal(err)
	}
	b.Run("topics=10000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			open(b, fsys)
		}
	})
}

// BenchmarkPut is one more topic, with a file system that costs nothing: the work is to write all the others again.
func BenchmarkPut(b *testing.B) {
	for _, topics := range []int{1, 10000} {
		b.Run(fmt.Sprintf("topics=%d", topics), func(b *testing.B) {
			x := open(b, vfs.NewMem())
			cs := make([]Topic, topics)
			for i := range cs {
				cs[i] = DefaultTopic(fmt.Sprintf("Topic-%05d", i))
			}
			if err := x.topics.PutAll(cs); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				cs[0].Perm = int32(i % 8)
				if err := x.topics.Put(cs[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
