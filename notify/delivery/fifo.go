package delivery

// fifo is a ring that grows by doubling. When it runs empty after a great crowd it gives its memory back, after a small one
// it waits for trim: under load a queue fills and runs empty all the time.
type fifo[T any] struct {
	buf  []T
	head int
	n    int
}

const (
	fifoKeep = 64   // capacity that an empty ring may keep for good
	fifoBusy = 1024 // and until trim
)

func (f *fifo[T]) len() int { return f.n }

func (f *fifo[T]) push(v T) {
	if f.n == len(f.buf) {
		f.grow()
	}
	f.buf[(f.head+f.n)&(len(f.buf)-1)] = v
	f.n++
}

func (f *fifo[T]) pushFront(v T) {
	if f.n == len(f.buf) {
		f.grow()
	}
	f.head = (f.head - 1) & (len(f.buf) - 1)
	f.buf[f.head] = v
	f.n++
}

func (f *fifo[T]) pop() T {
	var zero T
	v := f.buf[f.head]
	f.buf[f.head] = zero
	f.head = (f.head + 1) & (len(f.buf) - 1)
	f.n--
	if f.n == 0 && len(f.buf) > fifoBusy {
		f.buf, f.head = nil, 0
	}
	return v
}

// trim gives back the memory of an empty ring.
func (f *fifo[T]) trim() {
	if f.n == 0 && len(f.buf) > fifoKeep {
		f.buf, f.head = nil, 0
	}
}

// at returns a pointer to the i-th element from the front, valid until the next change.
func (f *fifo[T]) at(i int) *T { return &f.buf[(f.head+i)&(len(f.buf)-1)] }

func (f *fifo[T]) clear() { *f = fifo[T]{} }

func (f *fifo[T]) grow() {
	buf := make([]T, max(8, 2*len(f.buf)))
	for i := range f.n {
		buf[i] = *f.at(i)
	}
	f.buf, f.head = buf, 0
}
