package server

// Buffered is what the socket has read of c and the handler has not taken.
func Buffered(c *Conn) int { return c.link.Buffered() }
