"""What tests share: tables, exports, pages, stand-ins at the borders of the process."""
