package meta

// plainByte tells whether a byte may be in a group name of the pull side (spec/remoting.md 7).
func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '%' || c == '|' || c == '-' || c == '_'
}

// PlainGroup tells whether the name of a push group fits the alphabet of the pull side.
func PlainGroup[T ~string | ~[]byte](name T) bool {
	for i := 0; i < len(name); i++ {
		if !plainByte(name[i]) {
			return false
		}
	}
	return true
}

const upperHex = "0123456789ABCDEF"

// AppendPullName appends the name that a push group has on the pull side: itself when it fits the alphabet there, else with every
// byte outside of it, and '%', as % and two upper-case hex digits. At most three times as long.
func AppendPullName[T ~string | ~[]byte](dst []byte, name T) []byte {
	if PlainGroup(name) {
		return append(dst, name...)
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; plainByte(c) && c != '%' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// PullName is AppendPullName as a string.
func PullName(push string) string {
	if PlainGroup(push) {
		return push
	}
	return string(AppendPullName(nil, push))
}
