package wire

import (
	"bytes"
	"errors"
	"testing"
)

func addFrames(f *testing.F, part func(Frame) []byte) {
	for _, g := range goldenFrames(f) {
		if fr, _, err := Parse(g.frame); err == nil {
			f.Add(part(fr))
		}
	}
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
}

func FuzzParse(f *testing.F) {
	for _, g := range goldenFrames(f) {
		f.Add(g.frame)
		f.Add(append(g.frame, g.frame...))
		f.Add(append(g.frame, "garbage"...))
	}
	f.Add([]byte{MagicRequest, 0, 0x7f, 0xff, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, n, err := Parse(b)
		if err != nil {
			var fe *FrameError
			if n != 0 || !errors.Is(err, ErrShort) && !errors.As(err, &fe) {
				t.Fatalf("Parse = %d, %v", n, err)
			}
			return
		}
		if n > len(b) || n != fr.Size() {
			t.Fatalf("Parse took %d of %d", n, len(b))
		}
		var again []byte
		if fr.Response {
			again, err = AppendResponse(nil, fr.Opcode, fr.Status, fr.Opaque, fr.Header, fr.Body)
			if err == nil {
				copy(again[6:8], b[6:8]) // reserved
			}
		} else {
			again, err = AppendRequest(nil, fr.Opcode, fr.Opaque, fr.Header, fr.Body)
		}
		if err != nil || !bytes.Equal(again, b[:n]) {
			t.Fatalf("encoded again %x, %v, want %x", again, err, b[:n])
		}
	})
}

// codec is what every header has.
type codec interface {
	Decode([]byte) error
	Append([]byte) []byte
}

// fuzzHeader decodes, encodes, and asks for a fixed point: what was encoded decodes to what encodes the same.
func fuzzHeader(f *testing.F, part func(Frame) []byte, fresh func() codec) {
	addFrames(f, part)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := fresh()
		if err := m.Decode(b); err != nil {
			if ActionFor(err) != Answer {
				t.Fatalf("%v closes the connection", err)
			}
			return
		}
		once := m.Append(nil)
		m = fresh()
		if err := m.Decode(once); err != nil {
			t.Fatalf("own encoding does not decode: %v", err)
		}
		if twice := m.Append(nil); !bytes.Equal(once, twice) {
			t.Fatalf("not stable: %x, then %x", once, twice)
		}
	})
}

func headerOf(f Frame) []byte { return f.Header }
func bodyOf(f Frame) []byte   { return f.Body }

func FuzzMessageHeader(f *testing.F) {
	fuzzHeader(f, headerOf, func() codec { return new(sized) })
}

// sized checks Size beside the rest.
type sized struct{ MessageHeader }

func (s *sized) Append(dst []byte) []byte {
	out := s.MessageHeader.Append(dst)
	if len(out)-len(dst) != s.Size() {
		panic("Size is wrong")
	}
	_ = s.Validate()
	return out
}

func FuzzCommitRollback(f *testing.F) {
	fuzzHeader(f, headerOf, func() codec { return new(CommitRollback) })
}
func FuzzCheck(f *testing.F) { fuzzHeader(f, headerOf, func() codec { return new(Check) }) }
func FuzzCheckAck(f *testing.F) {
	fuzzHeader(f, headerOf, func() codec { return new(CheckAck) })
}
func FuzzMessageAck(f *testing.F) {
	fuzzHeader(f, headerOf, func() codec { return new(MessageAck) })
}
func FuzzSubscription(f *testing.F) {
	fuzzHeader(f, headerOf, func() codec { return new(Subscription) })
}
func FuzzMetadata(f *testing.F) { fuzzHeader(f, bodyOf, func() codec { return new(Metadata) }) }
func FuzzMetadataAnswer(f *testing.F) {
	fuzzHeader(f, headerOf, func() codec { return new(MetadataAnswer) })
}
func FuzzCredit(f *testing.F) { fuzzHeader(f, headerOf, func() codec { return new(Credit) }) }

type messageList struct{ list []ListMessage }

func (m *messageList) Decode(b []byte) (err error) {
	m.list, err = DecodeMessageList(nil, b)
	return err
}

func (m *messageList) Append(dst []byte) []byte {
	for i := range m.list {
		dst = AppendListMessage(dst, &m.list[i].Header, m.list[i].Body)
	}
	return dst
}

func FuzzMessageList(f *testing.F) { fuzzHeader(f, bodyOf, func() codec { return new(messageList) }) }

type listAck struct{ acks []MessageAck }

func (m *listAck) Decode(b []byte) (err error) {
	m.acks, err = DecodeMessageListAck(nil, b)
	return err
}

func (m *listAck) Append(dst []byte) []byte {
	for i := range m.acks {
		dst = AppendListAck(dst, &m.acks[i])
	}
	return dst
}

func FuzzMessageListAck(f *testing.F) { fuzzHeader(f, headerOf, func() codec { return new(listAck) }) }

func FuzzErrorText(f *testing.F) {
	addFrames(f, headerOf)
	f.Fuzz(func(t *testing.T, b []byte) {
		text, ok, err := ErrorText(b)
		if err != nil || !ok {
			return
		}
		if again, ok, err := ErrorText(AppendErrorText(nil, string(text))); err != nil || !ok || len(again) > MaxErrorText {
			t.Fatalf("%q comes back as %q, %v, %v", text, again, ok, err)
		}
	})
}

func FuzzBinding(f *testing.F) {
	f.Add(`{"kind":"fanout","topic":"TRADE","group":"S-ump"}`)
	f.Add(`{"kind":"header","topic":"T","group":"g","expr":"a == 1","waterMark":5,"persistent":false,"shadow":true}`)
	f.Add(`{"kind":"fanout","topic":"T","group":"g"}{}`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBinding([]byte(s))
		if err != nil {
			return
		}
		if again, err := ParseBinding(b.Append(nil)); err != nil || again != b {
			t.Fatalf("%s comes back as %v, %v", s, again, err)
		}
	})
}

func FuzzDeliveries(f *testing.F) {
	dst, b := BeginBatch(nil, 1)
	dst = drawHeaderFixed().Append(b.BeginEntry(dst))
	dst, _ = b.EndEntry(dst, 1)
	dst, _ = b.End(append(dst, 'x'), 0)
	fr, _, err := Parse(dst)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(fr.Header, fr.Body)
	f.Add(fr.Header, append(fr.Body, fr.Body...))
	f.Add([]byte{8, 1, 16, 255, 255, 3}, []byte{})
	f.Add([]byte{}, []byte{0xff})
	f.Fuzz(func(t *testing.T, header, body []byte) {
		d, err := Batch(header, body)
		if err != nil {
			return
		}
		taken, n := 0, d.Len()
		for i := range n + 1 {
			tag, h, b, ok, err := d.Next()
			if err != nil {
				return
			}
			if !ok {
				if i != n || taken != len(body) {
					t.Fatalf("ended after %d of %d messages, %d of %d bytes", i, n, taken, len(body))
				}
				return
			}
			if tag == 0 {
				t.Fatal("tag 0")
			}
			taken += entryFixed + len(h) + len(b)
		}
		t.Fatal("more messages than announced")
	})
}

func FuzzAcks(f *testing.F) {
	var e AckEncoder
	b := e.Append(nil, AckRun{First: 5, Last: 9})
	f.Add(e.Append(b, AckRun{First: 1, Last: 1, Status: StatusFailed, Text: []byte("no stock")}))
	f.Add([]byte{0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a := ReadAcks(b)
		var e AckEncoder
		var again []byte
		for {
			r, ok, err := a.Next()
			if err != nil {
				return
			}
			if !ok {
				break
			}
			if r.First == 0 || r.Last < r.First {
				t.Fatalf("run %+v", r)
			}
			again = e.Append(again, r)
		}
		x, y := ReadAcks(b), ReadAcks(again)
		for {
			rx, okx, _ := x.Next()
			ry, oky, err := y.Next()
			if err != nil || okx != oky || rx.First != ry.First || rx.Last != ry.Last || rx.Status != ry.Status || !bytes.Equal(rx.Text, ry.Text) {
				t.Fatalf("run %+v became %+v, %v", rx, ry, err)
			}
			if !okx {
				return
			}
		}
	})
}
