package state

import (
	"fmt"
	"testing"
)

// fixedExchange owes every message to the same groups.
type fixedExchange struct {
	plainExchange
	groups []string
}

func (x *fixedExchange) Targets(dst []string, at int64, topic string, properties []byte) []string {
	return append(dst, x.groups...)
}

func attachedMachine(groups int) *Machine {
	x := &fixedExchange{}
	var ops []Op
	for i := range groups {
		g := fmt.Sprintf("group-%03d", i)
		x.groups = append(x.groups, g)
		ops = append(ops, Op{Kind: OpBind, Topic: "T", Group: g, Binding: Binding{Kind: BindFanout}}, Op{Kind: OpAttach, Topic: "T", Group: g})
	}
	m := NewMachine(x)
	m.Apply(0, ops)
	return m
}

// BenchmarkLife is one message: owed, and deleted in a range of 64.
func BenchmarkLife(b *testing.B) {
	for _, groups := range []int{1, 50} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			m := attachedMachine(groups)
			op := []Op{{Kind: OpDelete, Topic: "T"}}
			h := Head{Topic: "T", Address: 0, Size: 1024}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 1; i <= b.N; i++ {
				h.Address += 1024
				h.Position = h.Address
				m.Message(&h)
				if i%64 == 0 {
					op[0].First, op[0].Last = h.Address-63*1024, h.Address
					h.Address += 100
					m.Apply(h.Address, op)
				}
			}
		})
	}
}

// BenchmarkRetry is one failure and its success, with many other retries waiting.
func BenchmarkRetry(b *testing.B) {
	for _, waiting := range []int{100, 100000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			m := attachedMachine(1)
			h := Head{Topic: "T", Size: 1024}
			at := int64(1)
			fail := func() int64 {
				h.Address = at
				m.Message(&h)
				m.Apply(at+1, []Op{{Kind: OpUpdate, Topic: "T", First: at, Failed: []Failed{{"group-000", 1, at % 9973}}}})
				at += 2
				return h.Address
			}
			addresses := make([]int64, waiting)
			for i := range addresses {
				addresses[i] = fail()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				a := &addresses[i%waiting]
				m.Apply(at, []Op{{Kind: OpRetire, Topic: "T", Group: "group-000", First: *a}})
				at++
				*a = fail()
			}
		})
	}
}

// BenchmarkDetach turns a full window of one group into retries; one op is one message.
func BenchmarkDetach(b *testing.B) {
	m := attachedMachine(2)
	at := int64(1)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += 10000 {
		for range 10000 {
			m.Message(&Head{Topic: "T", Address: at, Size: 1})
			at++
		}
		m.Apply(at, []Op{{Kind: OpDetach, Topic: "T", Group: "group-000"}})
		b.StopTimer()
		rs := make([]Retry, 10000)
		ops := make([]Op, 0, 10002)
		for _, r := range rs[:m.Retries("group-000", Retry{}, rs)] {
			ops = append(ops, Op{Kind: OpRetire, Topic: "T", Group: "group-000", First: r.Address})
		}
		m.Apply(at+1, append(ops, Op{Kind: OpDelete, Topic: "T", Last: at}, Op{Kind: OpAttach, Topic: "T", Group: "group-000"}))
		at += 2
		b.StartTimer()
	}
}

func BenchmarkOps(b *testing.B) {
	ops := make([]Op, 64)
	for i := range ops {
		ops[i] = Op{Kind: OpRetire, Topic: "Trade", Group: fmt.Sprintf("group-%d", i%4), First: 1<<40 + int64(i)*777}
	}
	body, err := AppendOps(nil, ops)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode/n=64", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 4096)
		for b.Loop() {
			if buf, err = AppendOps(buf[:0], ops); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode/n=64", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if _, err := DecodeOps(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
