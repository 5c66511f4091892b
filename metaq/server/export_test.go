package server

// Buffered is what the socket has read of c and the handler has not taken.
func Buffered(c *Conn) int { return c.link.Buffered() }

// Idle reports that no burst of c is in work: what has arrived by now has been answered and counted.
func Idle(c *Conn) bool { return !c.busy.Load() }
