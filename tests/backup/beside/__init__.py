"""The server beside a program that copies its file."""
