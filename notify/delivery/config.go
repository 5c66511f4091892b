package delivery

import (
	"math/rand/v2"
	"time"
)

// Config holds the numbers of delivery. The zero value of a field means its default.
type Config struct {
	AckTimeout    time.Duration   // wait for an answer when the message asks for none of its own. Default 5 s
	LateKeep      time.Duration   // how long after a timeout an answer is still honoured. Default 60 s
	DetachBacklog int             // most messages of a topic that may wait in an attached group. Default 10,000
	WaterMark     int             // most unanswered messages of a binding that states none. Default 10,000
	Linger        time.Duration   // how long an acknowledgement may wait for those of other groups, or a cursor's for those below it. Default 250 ms
	Rand          func(n int) int // a number in [0, n). Default math/rand/v2
}

func (c Config) withDefaults() Config {
	if c.AckTimeout == 0 {
		c.AckTimeout = 5 * time.Second
	}
	if c.LateKeep == 0 {
		c.LateKeep = time.Minute
	}
	if c.DetachBacklog == 0 {
		c.DetachBacklog = 10_000
	}
	if c.WaterMark == 0 {
		c.WaterMark = 10_000
	}
	if c.Linger == 0 {
		c.Linger = 250 * time.Millisecond
	}
	if c.Rand == nil {
		c.Rand = rand.IntN
	}
	return c
}
