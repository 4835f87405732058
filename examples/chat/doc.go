// Package chat tests the example of a chat.
package chat
