package meta

import (
	"bytes"
	"encoding/json"
)

// UnmarshalLenient is json.Unmarshal for what RocketMQ writes: integer keys may have no quotes.
func UnmarshalLenient(b []byte, v any) error {
	return json.Unmarshal(quoteKeys(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))), v)
}
