package mapping

import "github.com/fusionmq/fusionmq/store/meta"

// AppendGroup appends the name that a Notify group has on RocketMQ's side; see [meta.AppendPullName].
func AppendGroup[T ~string | ~[]byte](dst []byte, name T) []byte {
	return meta.AppendPullName(dst, name)
}

// Group is AppendGroup as a string.
func Group(notify string) string { return meta.PullName(notify) }

// DecodeGroup is the Notify name whose encoded form rocket is. ok is false when rocket is no encoded form: it then is a
// name of its own. An encoded form is also a legal plain name, which is why the store keeps who has it.
func DecodeGroup(rocket string) (notify string, ok bool) {
	out := make([]byte, 0, len(rocket))
	for i := 0; i < len(rocket); i++ {
		c := rocket[i]
		if c == '%' {
			if i+2 >= len(rocket) {
				return "", false
			}
			hi, lo := hexValue(rocket[i+1]), hexValue(rocket[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		out = append(out, c)
	}
	if meta.PlainGroup(out) || string(AppendGroup(nil, out)) != rocket {
		return "", false // nothing had to be encoded, or it was not encoded this way
	}
	return string(out), true
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
