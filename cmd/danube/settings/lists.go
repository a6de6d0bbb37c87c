package settings

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// parseList reads a list: of a file, or of text with commas, brackets or not.
func parseList(raw any) ([]string, error) {
	list := []string{}
	if items, ok := raw.([]any); ok {
		for _, item := range items {
			text, ok := scalarText(item)
			if pair, isMap := item.(map[string]any); isMap && len(pair) == 1 {
				// The YAML library takes [host:6379] for a mapping, which it is not.
				for name, port := range pair {
					rest, plain := scalarText(port)
					text, ok = name+":"+rest, plain
				}
			}
			if !ok {
				return nil, fmt.Errorf("wants a list of plain values")
			}
			list = append(list, text)
		}
		return list, nil
	}
	text, ok := scalarText(raw)
	if !ok {
		return nil, fmt.Errorf("wants a list, not a section")
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list, nil
}

// gossipPort is the port of a seed that names none.
const gossipPort = "7946"

// parseSeeds reads a list of HOST[:PORT] and completes the ports.
func parseSeeds(raw any) ([]string, error) {
	list, err := parseList(raw)
	if err != nil {
		return nil, err
	}
	for i, seed := range list {
		if list[i], err = parseSeed(seed); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func parseSeed(seed string) (string, error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(seed, "["), "]"), gossipPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("%q is no HOST[:PORT]", seed)
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("%q has no port between 1 and 65535", seed)
	}
	if host == "" || strings.ContainsAny(host, "/ ") {
		return "", fmt.Errorf("%q is no HOST[:PORT]", seed)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("%q is a wildcard: nobody can be reached there", seed)
	}
	return net.JoinHostPort(host, port), nil
}

// parseKey reads a key of gossip; "" is none.
func parseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("is no base64")
	}
	switch len(key) {
	case 0, 16, 24, 32:
		return key, nil
	}
	return nil, fmt.Errorf("has %d bytes; a key has 16, 24 or 32", len(key))
}
