"""What holds for all tests of rows and what makes them."""

from __future__ import annotations

from tests.certificates import unread_certificates as unread_certificates
