// Package settings is the configuration of a broker: its keys with their defaults and bounds, read from a YAML file, the
// environment and flags, the later over the earlier, with the place of every value and of every mistake. It opens
// nothing and knows no broker; the command turns a Config into the broker's own configuration.
//
// Load reads what a broker starts with, Check judges a file, Show prints. What a value of a setting and one of a flag have
// in common, how sizes, durations and counts are written, stands here too (ParseSize, FormatSize …), and Nearest finds
// what somebody who mistyped a word meant.
//
// keys.go has the keys, load.go the reading, later.go what a known key asks for and this version does not have.
package settings
