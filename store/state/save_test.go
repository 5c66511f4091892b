package state

import (
	"bytes"
	"testing/iotest"
)

// Save appends all of the state.
func (m *Machine) Save(dst []byte) []byte {
	f := m.Freeze()
	defer f.Release()
	b := bytes.NewBuffer(dst)
	if err := f.Save(b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Load makes a machine with a table in memory of it.
func Load(b []byte, x Exchange) (*Machine, error) { return LoadOn(b, x, new(memTable)) }

// LoadOn makes one with another table, which is empty.
func LoadOn(b []byte, x Exchange, t Table) (*Machine, error) {
	return LoadFrom(iotest.OneByteReader(bytes.NewReader(b)), x, t, nil)
}
