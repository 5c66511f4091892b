package runs

// View is a table as of one moment. It may be read while the table goes on, by one goroutine at a time.
type View struct {
	t    *Table
	v    *version
	tail tail
}

// View takes one: it copies the tail and keeps the files of the runs until it is released.
func (t *Table) View() *View {
	x := &View{t: t, v: t.acquire()}
	if t.tail.rows > 0 {
		all := make([]row, 0, t.tail.rows)
		for _, p := range t.tail.pieces {
			all = append(all, p...)
		}
		x.tail = tail{pieces: [][]row{all}, rows: len(all)}
	}
	return x
}

// Scan is [Table.Scan], but for a part of a run that cannot be read: that is an error, at which it ends.
func (x *View) Scan(from, to *Key, fn func(*Key, *Value) bool) error {
	return x.t.scan(&x.tail, x.v, from, to, true, fn)
}

// Release lets go of the runs. The view must not be used any more.
func (x *View) Release() {
	x.t.release(x.v)
	x.v, x.tail = nil, tail{}
}
