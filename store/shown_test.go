package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// shownKind is one way in which a message comes to be seen.
type shownKind struct {
	name  string
	kind  state.ViewKind // 0: as it is stored
	topic string         // where it is seen
	queue int32
	send  func(m *store.Message) // what the producer asks for
	then  func(s *store.Store, r store.Result) error
}

// shownKinds are all of them, for messages of topic T, queue 2.
var shownKinds = []shownKind{
	{name: "plain", topic: "T", queue: 2},
	{name: "commit", kind: state.ViewCommit, topic: "T", queue: 2, send: func(m *store.Message) { m.Half = true },
		then: func(s *store.Store, r store.Result) error { return endHalf(s, r.Address, true) }},
	{name: "commit for later", kind: state.ViewCommit, topic: "T", queue: 2, send: func(m *store.Message) { m.Half = true },
		then: func(s *store.Store, r store.Result) error {
			es := []store.HalfEnd{{Address: r.Address, Commit: true, Due: time.Now().Add(time.Second).UnixMilli()}}
			s.EndHalves(context.Background(), es)
			return es[0].Err
		}},
	{name: "delay", kind: state.ViewDelay, topic: "T", queue: 2, send: func(m *store.Message) { m.DelayLevel = 1 }},
	{name: "timer", kind: state.ViewTimer, topic: "T", queue: 2, send: func(m *store.Message) { m.DeliverAt = time.Now().Add(time.Second).UnixMilli() }},
	{name: "retry", kind: state.ViewRetry, topic: "%RETRY%g",
		then: func(s *store.Store, r store.Result) error {
			_, err := s.SendBack(context.Background(), store.SendBack{Group: "g", Address: r.Address, Level: 1, Most: 9})
			return err
		}},
	{name: "dead letter", kind: state.ViewDead, topic: "%DLQ%g",
		then: func(s *store.Store, r store.Result) error {
			_, err := s.SendBack(context.Background(), store.SendBack{Group: "g", Address: r.Address, Level: -1})
			return err
		}},
	{name: "aside", kind: state.ViewAside, topic: store.AsideTopic, send: func(m *store.Message) { m.Half = true },
		then: func(s *store.Store, r store.Result) error {
			if err := s.WaitApplied(context.Background(), r.Address); err != nil {
				return err
			}
			return s.SetHalvesAside([]int64{r.Address})
		}},
}

// shownBody is a body that no other record contains; no compression made it, whatever the flags say.
func shownBody(i int) []byte {
	rng := rand.New(rand.NewPCG(9, uint64(i)))
	b := make([]byte, 3000+i)
	for k := range b {
		b[k] = byte(rng.Uint32())
	}
	return b
}

var shownFlags = []int32{
	record.FlagCompressed, record.FlagCompressed | record.FlagCompressorLZ4, record.FlagCompressed | record.FlagCompressorZSTD,
	record.FlagCompressed | record.FlagCompressorZLIB, record.FlagMultiTags,
}

const shownBits = record.FlagCompressed | record.FlagCompressorMask | record.FlagMultiTags

// sendShown sends a message of each kind, has it come to where it is seen, and returns what the sends were answered. It is to be
// called in a bubble.
func sendShown(t testing.TB, s *store.Store) []store.Result {
	t.Helper()
	addTopic(t, s, "T", meta.Async)
	rs := make([]store.Result, len(shownKinds))
	for i, k := range shownKinds {
		m := store.Message{
			Topic: "T", Queue: 2, Body: shownBody(i), Properties: []byte("TAGS\x01TagA\x02KEYS\x01" + fmt.Sprint("shown-", i) + "\x02"), SysFlag: shownFlags[i%len(shownFlags)],
			Flag: int32(100 + i), BornTime: 1_600_000_000_000 + int64(i), BornHost: netip.MustParseAddrPort("10.1.2.3:4567"),
		}
		if k.send != nil {
			k.send(&m)
		}
		rs[i] = sendWaiting(t, s, m)
		if k.then != nil {
			if err := k.then(s, rs[i]); err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
		}
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
	return rs
}

// shownRecord finds the record of message i where kind k is seen.
func shownRecord(t testing.TB, s *store.Store, k shownKind, i int) (v record.View, e queue.Entry) {
	t.Helper()
	es := make([]store.TopicEntry, 100)
	for _, e := range es[:s.ReadTopic(k.topic, 0, es)] {
		b, release, err := s.Record(e.Entry)
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		v, err := record.Parse(slices.Clone(b))
		release()
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if key, _ := v.Property("KEYS"); e.Queue == k.queue && string(key) == fmt.Sprint("shown-", i) {
			return v, e.Entry
		}
	}
	t.Fatalf("%s: message %d is not in %s", k.name, i, k.topic)
	return v, e
}

// logBytes are all bytes of the log.
func logBytes(t testing.TB, fsys vfs.FS, dir string) []byte {
	t.Helper()
	var b []byte
	files := contents(t, fsys, filepath.Join(dir, "commitlog"))
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range files {
			if !yield(name) {
				return
			}
		}
	}) {
		if strings.HasPrefix(filepath.Base(name), "0") {
			b = append(b, files[name]...)
		}
	}
	return b
}

// Law 2 for all that makes a message seen: its body is in the log once, and what the view takes beside it is small.
func TestLaw2AViewAddsNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		s := open(t, store.Options{FS: fsys, Dir: "/s", SegmentBytes: 1 << 20})
		rs := sendShown(t, s)
		stored := int64(0)
		for i, k := range shownKinds {
			v, e := shownRecord(t, s, k, i)
			if !bytes.Equal(v.Body(), shownBody(i)) {
				t.Errorf("%s: another body", k.name)
			}
			if want := rs[i].Address; e.Position != want || (e.Address == want) != (k.kind == 0) {
				t.Errorf("%s: entry %+v, the record is at %d", k.name, e, want)
			}
			stored += int64(rs[i].Size)
		}
		all := logBytes(t, fsys, "/s")
		for i, k := range shownKinds {
			if n := bytes.Count(all, shownBody(i)); n != 1 {
				t.Errorf("%s: the body is in the log %d times", k.name, n)
			}
		}
		if more := s.Bounds().Max - stored; more > int64(len(shownKinds))*400 {
			t.Errorf("records of %d bytes took %d more", stored, more)
		}
	})
}

// Law 3: whatever way a message takes through the store, its body, its checksum, FLAG and the flags of compression are what the producer
// sent, also after a start from the log alone.
func TestLaw3BytesPassThroughTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		o := store.Options{FS: fsys, Dir: "/s", SegmentBytes: 1 << 20}
		s := open(t, o)
		sendShown(t, s)
		for _, when := range []string{"as sent", "from the log alone"} {
			for i, k := range shownKinds {
				v, _ := shownRecord(t, s, k, i)
				if !bytes.Equal(v.Body(), shownBody(i)) || v.BodyCRC() != record.CRC(shownBody(i)) || v.SysFlag()&shownBits != shownFlags[i%len(shownFlags)] || v.Flag() != int32(100+i) {
					t.Errorf("%s, %s: body of %d bytes with flags %#x and %d, sent were %d with %#x and %d", k.name, when, len(v.Body()), v.SysFlag(), v.Flag(), len(shownBody(i)), shownFlags[i%len(shownFlags)], 100+i)
				}
			}
			s = fromLog(t, s, o)
		}
	})
}
