package mapping

import (
	"fmt"
	"sync"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// RocketMQ's group names are made of the letters, digits and %|-_ only (spec/remoting.md 7).
func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '%' || c == '|' || c == '-' || c == '_'
}

func plainGroup[T ~string | ~[]byte](name T) bool {
	for i := 0; i < len(name); i++ {
		if !plainByte(name[i]) {
			return false
		}
	}
	return true
}

const hexDigits = "0123456789ABCDEF"

// AppendGroup appends the name that a Notify group has on RocketMQ's side: itself when it fits RocketMQ's alphabet, else
// with every byte outside of it, and '%', as % and two upper-case hex digits. At most three times as long.
func AppendGroup[T ~string | ~[]byte](dst []byte, name T) []byte {
	if plainGroup(name) {
		return append(dst, name...)
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; plainByte(c) && c != '%' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return dst
}

// Group is AppendGroup as a string.
func Group(notify string) string {
	if plainGroup(notify) {
		return notify
	}
	return string(AppendGroup(nil, notify))
}

// DecodeGroup is the Notify name whose encoded form rocket is. ok is false when rocket is no encoded form: it then is a
// name of its own. An encoded form is also a legal plain name, which is why [Names] keeps who has it.
func DecodeGroup(rocket string) (notify string, ok bool) {
	out := make([]byte, 0, len(rocket))
	for i := 0; i < len(rocket); i++ {
		c := rocket[i]
		if c == '%' {
			if i+2 >= len(rocket) {
				return "", false
			}
			hi, lo := hexValue(rocket[i+1]), hexValue(rocket[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		out = append(out, c)
	}
	if plainGroup(out) || string(AppendGroup(nil, out)) != rocket {
		return "", false // nothing had to be encoded, or it was not encoded this way
	}
	return string(out), true
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// Names is the one namespace of groups: which Notify name stands behind a name on RocketMQ's side. It may be used by
// many goroutines. The zero value is empty.
type Names struct {
	mu     sync.RWMutex
	notify map[string]string // RocketMQ name -> Notify name
}

// Claim takes the RocketMQ name of a Notify group, or of a RocketMQ group (whose names are their own). Claiming a name
// again is no change. It returns a [*wire.InputError] when another group has that name.
func (n *Names) Claim(notify string) (rocket string, err error) {
	rocket = Group(notify)
	n.mu.RLock()
	owner, ok := n.notify[rocket]
	n.mu.RUnlock()
	if !ok {
		n.mu.Lock()
		if owner, ok = n.notify[rocket]; !ok {
			if n.notify == nil {
				n.notify = make(map[string]string)
			}
			n.notify[rocket], owner = notify, notify
		}
		n.mu.Unlock()
	}
	if owner != notify {
		return "", &wire.InputError{Field: "group", Value: wire.Quote(notify),
			Rule: fmt.Sprintf("its name for RocketMQ clients, %s, already names the group %s", wire.Quote(rocket), wire.Quote(owner))}
	}
	return rocket, nil
}

// Notify is the Notify name behind a RocketMQ name: the one that claimed it, else the name itself.
func (n *Names) Notify(rocket string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if name, ok := n.notify[rocket]; ok {
		return name
	}
	return rocket
}

// Release gives a name back.
func (n *Names) Release(notify string) {
	rocket := Group(notify)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.notify[rocket] == notify {
		delete(n.notify, rocket)
	}
}
