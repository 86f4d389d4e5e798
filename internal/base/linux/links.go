package linux

import (
	"fmt"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Link is a network interface with its addresses.
type Link struct {
	Name      string `json:"ifname"`
	MTU       int    `json:"mtu"`
	Type      string `json:"link_type"` // ether, infiniband, loopback …
	Addresses []struct {
		Family string `json:"family"` // inet, inet6
		Local  string `json:"local"`
		Prefix int    `json:"prefixlen"`
	} `json:"addr_info"`
}

// ParseLinks reads `ip -json address show`. Source: ip-address(8)
func ParseLinks(text string) ([]Link, error) {
	var links []Link
	if _, err := health.JSON(text, &links); err != nil { // an odd value costs that value
		return nil, fmt.Errorf("ip -json address show: %w", err)
	}
	return links, nil
}

// LinkWith finds the interface that has an address.
func LinkWith(links []Link, address string) (Link, bool) {
	for _, l := range links {
		for _, a := range l.Addresses {
			if a.Local == address {
				return l, true
			}
		}
	}
	return Link{}, false
}
