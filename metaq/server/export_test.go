package server

// Buffered is what netpoll has read of c and the handler has not taken.
func Buffered(c *Conn) int { return c.link.buffered() }
