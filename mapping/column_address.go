package mapping

import (
	"encoding/binary"
	"net/netip"
)

// ipv4Column holds IPv4, a little-endian number. It reads dotted quads.
type ipv4Column struct {
	fixed
}

func (c *ipv4Column) appendJSON(s *scanner) bool {
	addr, start, ok := s.address("a string with an IPv4 address")
	if !ok {
		return false
	}
	if !addr.Is4() {
		return s.fail(ClassFormat, start, "not an IPv4 address like 192.0.2.1")
	}
	b := addr.As4()
	c.data = binary.LittleEndian.AppendUint32(c.data, binary.BigEndian.Uint32(b[:]))
	return true
}

func (c *ipv4Column) appendText(dst []byte, i int, quoted bool) []byte {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.LittleEndian.Uint32(c.at(i)))
	return appendQuote(netip.AddrFrom4(b).AppendTo(appendQuote(dst, quoted)), quoted)
}

// ipv6Column holds IPv6, sixteen bytes in the order of the network. It reads
// IPv6 addresses, and dotted quads as ::ffff:a.b.c.d, as the server does.
type ipv6Column struct {
	fixed
}

func (c *ipv6Column) appendJSON(s *scanner) bool {
	addr, start, ok := s.address("a string with an IPv6 address")
	if !ok {
		return false
	}
	if !addr.IsValid() {
		return s.fail(ClassFormat, start, "not an IPv6 address like 2001:db8::1")
	}
	b := addr.As16()
	c.data = append(c.data, b[:]...)
	return true
}

func (c *ipv6Column) appendText(dst []byte, i int, quoted bool) []byte {
	return appendQuote(netip.AddrFrom16([16]byte(c.at(i))).AppendTo(appendQuote(dst, quoted)), quoted)
}

// address reads a string with an address. It returns the zero Addr for a text
// that is none, and for one with a zone, which no column can keep.
func (s *scanner) address(want string) (addr netip.Addr, start int, ok bool) {
	start = s.pos
	if s.peek() != '"' {
		return addr, start, s.wrongType(want)
	}
	text, ok := s.str()
	if !ok {
		return addr, start, false
	}
	addr, err := netip.ParseAddr(view(text))
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, start, true
	}
	return addr, start, true
}
