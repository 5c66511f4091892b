package broker

import (
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

// Properties by which a message asks to be delivered later. DELAY goes before all others; of those the first that is there counts.
const (
	propDelay     = "DELAY"            // a level
	propDelaySec  = "TIMER_DELAY_SEC"  // from now
	propDelayMS   = "TIMER_DELAY_MS"   // from now
	propDeliverMS = "TIMER_DELIVER_MS" // since 1970
)

// asked is what the properties of a message say to the broker. Texts alias them.
type asked struct {
	uniq  string // UNIQ_KEY
	dirty bool   // there are entries that the broker replaces
	waits bool   // the message may have to wait: one of the fields below is set
	half  bool   // TRAN_MSG
	group string // PGROUP, whose members are asked about a half

	level          int32  // above 0
	sec, ms, at    string // times as they came
	hasSec         bool   // a property may be there and empty
	hasMS, hasAt   bool
	timerDelivered bool // TIMER_OUT_MS: the properties are those of a delivered message, whose time is over
}

// read fills a from property text.
func (a *asked) read(text string) error {
	*a = asked{}
	for text != "" {
		entry := text
		if i := strings.IndexByte(text, 2); i >= 0 {
			entry, text = text[:i], text[i+1:]
		} else {
			text = ""
		}
		i := strings.IndexByte(entry, 1)
		if i <= 0 {
			continue
		}
		name, value := entry[:i], entry[i+1:]
		if value == "" && !strings.HasPrefix(name, "TIMER_DEL") && name != propDelay {
			continue
		}
		switch name {
		case "UNIQ_KEY":
			a.uniq = value
		case "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK":
			a.dirty = true
		case propDelay:
			level, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return refuse(remoting.RespMessageIllegal, "property DELAY is %q, want a level as a number", clip(value))
			}
			a.level, a.waits = max(int32(level), 0), true
		case propDelaySec:
			a.sec, a.hasSec, a.waits = value, true, true
		case propDelayMS:
			a.ms, a.hasMS, a.waits = value, true, true
		case propDeliverMS:
			a.at, a.hasAt, a.waits = value, true, true
		case "TIMER_OUT_MS":
			a.timerDelivered = true
		case "TRAN_MSG":
			a.half = strings.EqualFold(value, "true")
		case "PGROUP":
			a.group = value
		}
	}
	return nil
}

// timer says whether a time of delivery, or a delay in seconds or milliseconds, is there.
func (a *asked) timer() bool { return a.hasSec || a.hasMS || a.hasAt }

// ordinary refuses a message that asks for anything that the messages of a batch cannot have.
func (a *asked) ordinary() error {
	if a.level > 0 || a.timer() || a.half {
		for _, p := range []struct {
			name string
			set  bool
		}{{propDelay, a.level > 0}, {propDelaySec, a.hasSec}, {propDelayMS, a.hasMS}, {propDeliverMS, a.hasAt}, {"TRAN_MSG", a.half}} {
			if p.set {
				return refuse(remoting.RespMessageIllegal, "property %s is not supported for batching: send delayed and transactional messages one by one", p.name)
			}
		}
	}
	return nil
}

// deliverAt is when the message is to be delivered, in milliseconds since 1970; 0 at once, or after its level.
func (a *asked) deliverAt(now int64) (int64, error) {
	if a.level > 0 || a.timerDelivered {
		return 0, nil
	}
	at := int64(0)
	switch {
	case a.hasSec:
		n, err := delay(propDelaySec, a.sec, store.MaxDelay/1000)
		if err != nil {
			return 0, err
		}
		at = now + n*1000
	case a.hasMS:
		n, err := delay(propDelayMS, a.ms, store.MaxDelay)
		if err != nil {
			return 0, err
		}
		at = now + n
	case a.hasAt:
		n, err := delay(propDeliverMS, a.at, now+store.MaxDelay)
		if err != nil {
			return 0, err
		}
		at = n
	}
	if at <= now {
		at = 0
	}
	return at, nil
}

// delay reads a delay or a time of at most most; a negative one counts as 0.
func delay(name, value string, most int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, refuse(remoting.RespMessageIllegal, "timer message illegal, property %s is %q, want a whole number from 0 to %d", name, clip(value), most)
	}
	if n > most {
		return 0, refuse(remoting.RespMessageIllegal, "timer message illegal, the delay time should not be bigger than the max delay %dms: property %s is %d, at most %d is possible now", int64(store.MaxDelay), name, n, most)
	}
	return max(n, 0), nil
}
