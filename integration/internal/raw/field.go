package raw

import "bytes"

// Int finds a whole number in a JSON header by its name, wherever it stands and whether quoted or not; 0 when it is not there.
func Int(header []byte, name string) int64 {
	v := value(header, name)
	if len(v) > 0 && v[0] == '"' {
		v = v[1:]
	}
	neg := len(v) > 0 && v[0] == '-'
	if neg {
		v = v[1:]
	}
	var n int64
	for _, ch := range v {
		if ch < '0' || ch > '9' {
			break
		}
		n = n*10 + int64(ch-'0')
	}
	if neg {
		return -n
	}
	return n
}

// Str finds a string by its name; escapes stay as they are. It is empty when there is none.
func Str(header []byte, name string) string {
	v := value(header, name)
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '\\':
			i++
		case '"':
			return string(v[1:i])
		}
	}
	return ""
}

// value is what follows `"name":`, up to the end of the header.
func value(header []byte, name string) []byte {
	for rest := header; ; {
		i := bytes.Index(rest, []byte(name))
		if i < 0 {
			return nil
		}
		end := i + len(name)
		if i > 0 && rest[i-1] == '"' && end+1 < len(rest) && rest[end] == '"' {
			v := bytes.TrimLeft(rest[end+1:], " ")
			if len(v) > 0 && v[0] == ':' {
				return bytes.TrimLeft(v[1:], " ")
			}
		}
		rest = rest[end:]
	}
}
