package log

import (
	"errors"
	"fmt"

	"github.com/fusionmq/fusionmq/store/record"
)

// Valid says what is wrong with the content of a well-formed record that was read at a position; nil for a record that a start
// takes.
func Valid(v record.View, pos int64) error {
	if v.PhysicalOffset() != pos {
		return fmt.Errorf("record: says it is at %d", v.PhysicalOffset())
	}
	if err := v.CheckBody(); err != nil {
		return err
	}
	if torn(v, pos) {
		return errors.New("record: its topic or properties were not all written")
	}
	return nil
}
