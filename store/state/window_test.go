package state

import "testing"

// A window holds what is open. One message that is never answered, below a million that are, does not keep those in memory.
func TestLaw7TheWindowFollowsWhatIsOpen(t *testing.T) {
	m := attachedMachine(1)
	at := int64(1)
	next := func() int64 {
		at += 100
		if _, ok := m.Message(&Head{Topic: "T", Address: at, Position: at, Size: 100}); !ok {
			t.Fatal("the message is owed to nobody")
		}
		return at
	}
	slow := next()
	last := next()
	for range 200_000 { // the newest one is open, too
		this := next()
		at++
		m.Apply(at, []Op{{Kind: OpDelete, Topic: "T", First: last, Last: last}})
		last = this
	}
	w := &m.topics["T"].window
	if w.live != 2 || w.find(slow) == nil || w.find(last) == nil || m.Stats().Window != 2 {
		t.Errorf("%d messages are open, want the first and the last one", w.live)
	}
	if n := cap(w.shares); n > 1024 {
		t.Errorf("room for %d messages, two are open", n)
	}
}
